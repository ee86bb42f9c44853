"""The direct engine: it executes plans in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from tailrace.hub.hub import Hub
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Attempt, WriterSession
from tailrace.pipeline.writing.attempt import (
    AttemptReport,
    CoveredRows,
    covered_rows,
    make_attempt,
)
from tailrace.pipeline.writing.plan import PlanPart
from tailrace.pipeline.writing.plan_engine import ATTEMPTS_PER_ROUND, PendingPart, PlanRound
from tailrace.topic.reading import batches_within


class DirectEngine:
    """Executes plans in the calling thread, on any backend, without Spark and Java."""

    tasks = 1

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def run(
        self, plan_round: PlanRound, parts: Sequence[PendingPart], stopping: threading.Event
    ) -> list[AttemptReport]:
        """Make one attempt at each part."""
        return [
            make_attempt(
                plan_round.writer,
                plan_round.chain,
                attempt_of(plan_round, part, self._hub),
                done,
                partial(self._batches, part),
                stopping.is_set,
            )
            for part, done in parts
        ]

    def open(self, plan_round: PlanRound, part: PlanPart) -> WriterSession:
        """Begin an attempt in this process."""
        return plan_round.writer.open(attempt_of(plan_round, part, self._hub))

    def one_at_a_time(self, plan_round: PlanRound, part: PendingPart) -> Iterator[CoveredRows]:
        """Yield the records of a part after the chain, one at a time."""
        batches = self._batches(part.part)
        for covered in covered_rows(batches, part.part.offsets, part.done):
            for index, offset in enumerate(covered.rows.offsets):
                result = plan_round.chain.apply(covered.rows.take([index]))
                yield CoveredRows(result, Offsets(offset, offset + 1))

    def _batches(self, part: PlanPart) -> Iterator[pa.RecordBatch]:
        return batches_within(self._hub.backend.log, part.where, part.start, part.end)


def attempt_of(plan_round: PlanRound, part: PlanPart, hub: Hub) -> Attempt:
    """Return the attempt of a round that is made in the driver."""
    return Attempt(
        writer=plan_round.name,
        stream=plan_round.stream_of(part.where),
        plan=plan_round.plan,
        offsets=part.offsets,
        epoch=plan_round.epoch,
        number=plan_round.number * ATTEMPTS_PER_ROUND,
        fence=plan_round.fence,
        open_hub=lambda: hub,
    )
