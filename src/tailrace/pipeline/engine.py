"""Where plans are carried out. The direct engine does it here, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.chain import Chain
from tailrace.pipeline.deliver import Covered, Report, covered, make_attempt
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.plan import Part
from tailrace.pipeline.writer import Attempt, Writer, WriterSession, stream_name
from tailrace.topic.reading import batches_within

ATTEMPTS_A_ROUND: Final = 1 << 32
"""Attempts of a later round are newer than all attempts of the rounds before."""


class Assignment(NamedTuple):
    """A part of a plan, with what is done of it already."""

    part: Part
    done: Sequence[Offsets]


@dataclass(frozen=True, slots=True)
class Work:
    """A writer's work on a plan, apart from which parts of it.

    `log` is the identity of the commit log. Each time a writer
    sets about a plan is a new `round` of its epoch.
    """

    writer: Writer
    chain: Chain
    name: str
    log: str
    fence: str
    epoch: int
    round: int
    plan: str

    def stream_of(self, partition: Partition) -> str:
        """The name of a partition of the commit log for ever."""
        return stream_name(self.log, partition)


class PlanEngine(Protocol):
    """Carries out plans."""

    @property
    def tasks(self) -> int:
        """How many parts are worked on side by side."""

    def run(
        self, work: Work, parts: Sequence[Assignment], stopping: threading.Event
    ) -> list[Report]:
        """Make an attempt, or more, at each part; the report of the last one of each, in order.

        Ends soon after `stopping` is set, between two batches.
        """

    def open(self, work: Work, part: Part) -> WriterSession:
        """Begin an attempt at a part in the driver, newer than all before this round."""

    def singly(self, work: Work, part: Assignment) -> Iterator[Covered]:
        """The records of a part as they come out of the chain, one record at a time: the last of
        the offsets it comes with; those before it have no rows.

        `RowError` for the first that the chain cannot handle; the iterator is over then.
        """


class DirectEngine:
    """Works in the calling thread, on any backend, without Spark and without Java."""

    tasks = 1

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def run(
        self, work: Work, parts: Sequence[Assignment], stopping: threading.Event
    ) -> list[Report]:
        """One attempt at each part."""
        return [
            make_attempt(
                work.writer,
                work.chain,
                attempt_of(work, part, self._hub),
                done,
                partial(self._batches, part),
                stopping.is_set,
            )
            for part, done in parts
        ]

    def open(self, work: Work, part: Part) -> WriterSession:
        """An attempt in this process."""
        return work.writer.open(attempt_of(work, part, self._hub))

    def singly(self, work: Work, part: Assignment) -> Iterator[Covered]:
        """The records of a part through the chain, one at a time."""
        batches = self._batches(part.part)
        for rows, _ in covered(batches, part.part.offsets, part.done):
            for index, offset in enumerate(rows.offsets):
                result = work.chain.apply(rows.take([index]))
                yield Covered(result, Offsets(offset, offset + 1))

    def _batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        return batches_within(self._hub.backend.log, part.where, part.start, part.end)


def attempt_of(work: Work, part: Part, hub: Hub) -> Attempt:
    """The attempt of a round that is made in the driver."""
    return Attempt(
        writer=work.name,
        stream=work.stream_of(part.where),
        plan=work.plan,
        offsets=part.offsets,
        epoch=work.epoch,
        number=work.round * ATTEMPTS_A_ROUND,
        fence=work.fence,
        open_hub=lambda: hub,
    )
