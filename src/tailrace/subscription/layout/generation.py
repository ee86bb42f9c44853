"""The next generation of a subscription: a number of shards, and the storage topics of MQ that it
reads. Pure.

A generation reads the first `opened` storage topics of its topic. It opens the next one as soon as
every key keeps its shard there. Where some keys would not, the next storage topic is opened by a
new generation, once all before it are finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from tailrace.subscription.layout.assignment import Assignment
from tailrace.topic.lineage import Shape
from tailrace.topic.router import RouterKind


class ChangePhase(Enum):
    """How far the change to the next generation is. The values are stored."""

    ASKED = "asked"
    """The generation works on, until the next one is possible."""
    ENDING = "ending"
    """No shard is granted. Owners store their last outcomes and release their shards."""
    MOVING = "moving"
    """All shards are fenced. What is kept by shard is written for the next generation."""


class GenerationChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change of a subscription to its next generation, as it is stored.

    `shards` is the number that was asked for, or that the next storage topic needs. From `ENDING`
    on, `opened` is the number of storage topics that the next generation reads. `since_ms` is the
    time at which it was asked for, and `by` who did so; empty if a scaling of the topic did.
    """

    phase: ChangePhase
    shards: int
    uneven: bool = False
    opened: int = 0
    since_ms: int = 0
    by: str = ""


class NextGeneration(NamedTuple):
    """A generation that is possible once the storage topics of MQ before `oldest` are finished."""

    shards: int
    opened: int
    oldest: int


class MainTopic(NamedTuple):
    """The storage topics of MQ up to the one that takes pushes, and how many of them are open."""

    strategy: Assignment
    kind: RouterKind
    shapes: Sequence[Shape]
    opened: int

    def agrees(self, one: int, other: int, shards: int) -> bool:
        """True if every key has the same shard in two storage topics."""
        return self.strategy.consistent(self.kind, (self.shapes[one], self.shapes[other]), shards)

    def reach(self, shards: int, opened: int) -> int:
        """Return how many storage topics are open once all are opened in which every key keeps its
        shard, if `opened` are open now."""
        while opened < len(self.shapes) and self.agrees(opened - 1, opened, shards):
            opened += 1
        return opened

    def oldest(self, shards: int, opened: int) -> int:
        """Return the first of the storage topics from which on every key keeps its shard, up to the
        last one of `opened`."""
        last = oldest = opened - 1
        while oldest > 0 and self.agrees(oldest - 1, last, shards):
            oldest -= 1
        return oldest

    @property
    def newest(self) -> Shape:
        """The shape of the storage topic that takes pushes."""
        return self.shapes[-1]


def asked_generation(main: MainTopic, shards: int, *, uneven: bool) -> NextGeneration:
    """Return the next generation with a number of shards that was asked for.

    It reads what is open now. If that has too few partitions for so many shards, or a number that
    they do not divide, it begins with the next storage topic.
    """
    opened = main.reach(shards, main.opened)
    partitions = main.shapes[opened - 1].partitions
    fits = shards <= partitions and (uneven or partitions % shards == 0)
    if fits or opened == len(main.shapes):
        return NextGeneration(shards, opened, main.oldest(shards, opened))
    return NextGeneration(shards, main.reach(shards, opened + 1), opened)


def scaled_generation(main: MainTopic, shards: int) -> NextGeneration | None:
    """Return the generation that opens a storage topic in which some key has another shard; None if
    every key keeps its shard, or if all storage topics are open.

    It has as many shards as now, or one for each partition if there are fewer.
    """
    opened = main.reach(shards, main.opened)
    if opened == len(main.shapes):
        return None
    shards = min(shards, main.shapes[opened].partitions)
    return NextGeneration(shards, main.reach(shards, opened + 1), opened)
