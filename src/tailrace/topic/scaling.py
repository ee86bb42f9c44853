"""The plan of a change of the number of partitions, and its consequences."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from tailrace.amount import format_amount
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Shape, consistent, follows, is_usual_count
from tailrace.topic.router import RouterKind

_SHARDS_MAX = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """A scaling that has not been applied yet. `str` of a plan is the text for people.

    `storage` is the index of the storage topic that pushes will go to. It is the present one if the
    topic already has this number of partitions, and then the plan does nothing. `waiting` counts
    the offsets of the present one, gaps and consumed messages included; consumers finish it before
    the new one. `shards`
    are the numbers of shards, up to 64, with which no key changes its shard. `consequences` are
    pairs of a name, such as ``undo``, and a sentence.
    """

    topic: str
    before: Shape
    after: Shape
    storage: int
    waiting: int
    shards: tuple[int, ...]
    summary: str
    consequences: tuple[tuple[str, str], ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The text for people, line by line."""
        width = max((len(name) for name, _ in self.consequences), default=0)
        rest = (f"  {name:<{width}}  {what}" for name, what in self.consequences)
        return self.summary, *rest

    def __str__(self) -> str:
        return "\n".join(self.lines)


def plan_scale(
    topic: str, definition: Definition, partitions: int, any_count: bool, waiting: int
) -> Plan:
    """Return the plan for a topic to have this number of partitions."""
    before = definition.shape
    if partitions == before.partitions:
        line = f"{topic} has {format_amount(partitions, 'partition')}: nothing to do"
        return Plan(topic, before, before, definition.pointer, 0, (), line)
    scaled = definition.scaled(partitions, any_count=any_count)
    after, storage = scaled.shape, scaled.pointer
    common = gcd(before.partitions, after.partitions)
    shards = tuple(
        count
        for count in range(1, min(common, _SHARDS_MAX) + 1)
        if common % count == 0 and consistent(scaled.router, (before, after), count)
    )
    summary = (
        f"{topic} {before.partitions} -> {format_amount(after.partitions, 'partition')}: "
        f"{_successors(scaled, before)}"
    )
    consequences = tuple(_consequences(definition, scaled, shards, waiting))
    return Plan(topic, before, after, storage, waiting, shards, summary, consequences)


def enough_partitions(partitions: int, wanted: int) -> int:
    """Return the least multiple of a number of partitions, of those that topics have, that is at
    least the wanted number."""
    counts = filter(is_usual_count, itertools.count(partitions, partitions))
    return next(count for count in counts if count >= wanted)


def _successors(scaled: Definition, before: Shape) -> str:
    """Describe which partitions follow which, in one clause."""
    after = scaled.shape
    if scaled.router is RouterKind.SHARD_CONSISTENT and before.base == after.base and before.k == 1:
        block = [f"{after.k}p", *(f"{after.k}p+{i}" for i in range(1, after.k))]
        shown = ", ".join(block if after.k <= 4 else [block[0], "...", block[-1]])
        return f"partition p is followed by {shown}"
    previous = scaled.storage[scaled.pointer - 1]
    counts = {
        len(follows(scaled.router, previous, after, number)) for number in range(after.partitions)
    }
    low, high = min(counts), max(counts)
    return f"each partition follows {high if low == high else f'{low} to {high}'} earlier ones"


def _consequences(
    now: Definition, scaled: Definition, shards: tuple[int, ...], waiting: int
) -> Iterator[tuple[str, str]]:
    """Yield the consequences that an operator should know, as pairs of a name and a sentence."""
    if len(shards) == 1:
        yield "shards", "keys change their shard if there is more than one shard"
    else:
        counts = ", ".join(map(str, shards[:-1]))
        yield "shards", f"with {counts} or {shards[-1]} shards, no key changes its shard"
    stored = f"storage {now.pointer} keeps up to {format_amount(waiting, 'message')}"
    yield "stored", f"{stored}; consumers finish it before storage {scaled.pointer}"
    for storage in range(now.pointer + 1, scaled.pointer):
        yield "skip", f"storage {storage} was never switched to and stays empty"
    yield "undo", f"none; scaling back adds storage {scaled.pointer + 1}"
