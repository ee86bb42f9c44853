"""The contract of an engine, which executes plans, and the work that it is given."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from tailrace.message import Partition
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.writer import Writer, WriterSession, stream_name
from tailrace.pipeline.writing.attempt import AttemptReport, CoveredRows
from tailrace.pipeline.writing.plan import PlanPart

ATTEMPTS_PER_ROUND: Final = 1 << 32
"""Attempts of a later round are newer than all attempts of earlier rounds."""


class PendingPart(NamedTuple):
    """A part of a plan, with its acknowledged offsets."""

    part: PlanPart
    done: Sequence[Offsets]


@dataclass(frozen=True, slots=True)
class PlanRound:
    """One round of a writer's work on a plan.

    `log` is the identity of the commit log. Each time a writer starts or resumes a plan is a new
    round of its epoch, with a higher `number`.
    """

    writer: Writer
    chain: Chain
    name: str
    log: str
    fence: str
    epoch: int
    number: int
    plan: str

    def stream_of(self, partition: Partition) -> str:
        """Return the name of a partition of the commit log, unique for ever."""
        return stream_name(self.log, partition)


class PlanEngine(Protocol):
    """Executes plans."""

    @property
    def tasks(self) -> int:
        """The number of parts that run in parallel."""

    def run(
        self, plan_round: PlanRound, parts: Sequence[PendingPart], stopping: threading.Event
    ) -> list[AttemptReport]:
        """Make one attempt or more at each part.

        Return the report of the last attempt of each, in order. Ends soon after `stopping` is set,
        between two batches.
        """

    def open(self, plan_round: PlanRound, part: PlanPart) -> WriterSession:
        """Begin an attempt at a part in the driver, newer than all attempts of earlier rounds."""

    def one_at_a_time(self, plan_round: PlanRound, part: PendingPart) -> Iterator[CoveredRows]:
        """Yield the records of a part after the chain, one record at a time.

        The record is at the last of the offsets that come with it; the offsets before have no rows.
        Raises `RowError` for the first record that the chain cannot transform; the iterator ends
        there.
        """
