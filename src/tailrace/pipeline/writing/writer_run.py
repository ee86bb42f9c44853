"""Driving one writer: plan, write, acknowledge; after a failure, one record at a time.

If the sink cannot be reached, the writer waits: its plan stays open, and the next try begins by
reading from the sink what it has, so an unknown outcome is known then.

The ledger is the truth about delivered records. For a sink that stores its offsets, these are the
truth about the sink. Everything is committed under the writer's fence, so two drivers cannot both
move a writer.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from tailrace.clock import Clock
from tailrace.delivery.dead_letters.letter import failed_record
from tailrace.errors import Error, Fenced, Sealed, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.definition.definition import PipelineDefinition, WriterDefinition
from tailrace.pipeline.definition.settings import OnError
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Staged
from tailrace.pipeline.writer_status import WaitsFor, WriterStatus
from tailrace.pipeline.writing.attempt import describe_error
from tailrace.pipeline.writing.bulk import deliver_bulk
from tailrace.pipeline.writing.failure import (
    WriterFailure,
    failure_of_error,
    failure_of_wait,
    log_failure,
)
from tailrace.pipeline.writing.fault import Fault, fault_of, is_missing, waits_for
from tailrace.pipeline.writing.next_state import failed_state, next_state, waiting_state
from tailrace.pipeline.writing.one_at_a_time import deliver_one_at_a_time
from tailrace.pipeline.writing.operator_hold import wait_for_operator
from tailrace.pipeline.writing.placement import WorkPlacement
from tailrace.pipeline.writing.plan import (
    PlanKind,
    PlanPart,
    StagedPart,
    WritePlan,
    acknowledged,
    next_parts,
    open_streams,
    without_parts,
)
from tailrace.pipeline.writing.plan_engine import PendingPart, PlanEngine, PlanRound
from tailrace.pipeline.writing.reconcile import forget_rewound, reconcile
from tailrace.pipeline.writing.registration import register_writer
from tailrace.pipeline.writing.sink_outage import SinkOutage, after_failed_try, is_over
from tailrace.pipeline.writing.writer_ledger import (
    Appends,
    WriterLedger,
    WriterName,
    WriterState,
)
from tailrace.topic.reading import record_at

_log = logging.getLogger(__name__)

_FENCED_MAX: Final = 10
"""The number of times in a row that operators may intervene. More means that another process drives
the writer."""


class WriterRun:
    """One writer of a running pipeline. `drain` may be called from any thread.

    After a failure the writer stays `failed` until an operator intervenes. While the sink cannot be
    reached there is an `outage`, and `drain` does nothing before the next try is due. After
    `wait_s` of waiting the writer fails; None waits without end. `check_sink`, if given, is called
    before the sink is first used; it raises to refuse the sink.
    """

    def __init__(
        self,
        hub: Hub,
        pipeline: PipelineDefinition,
        definition: WriterDefinition,
        engine: PlanEngine,
        clock: Clock,
        *,
        wait_s: float | None = None,
        check_sink: Callable[[], None] | None = None,
    ) -> None:
        self.name = WriterName(pipeline.name, definition.name)
        self.definition = definition
        self.stopping = threading.Event()
        self.hub = hub
        self.clock = clock
        self.engine = engine
        self.progress_interval_s = pipeline.settings.progress_interval.total_seconds()
        self._log = hub.topic(pipeline.commit_log)
        self._dead_letters = hub.topic(pipeline.dead_letters)
        self.ledger = WriterLedger(hub.backend, self.name, self._log.view)
        self._rounds = itertools.count(1)
        self._plans = itertools.count(1)
        self._mutex = threading.RLock()
        self._wait_s = wait_s
        self._check_sink = check_sink
        self._created = False
        self.log_deleted = False
        """True if the commit log was deleted while the writer ran."""
        self.outage: SinkOutage | None = None
        """The outage of the sink. It is still there when the run ends before the sink is back."""

    @property
    def failed(self) -> bool:
        """True if the writer waits for an operator."""
        return self.ledger.state.state is WriterStatus.FAILED

    @property
    def try_is_due(self) -> bool:
        """True if the writer waits for its sink and may try again now."""
        outage = self.outage
        return outage is not None and outage.is_due(self.clock.monotonic())

    def register(self) -> None:
        """Register the writer as a consumer of the commit log.

        So compaction removes no record that the writer has not delivered. A writer that has not run
        before learns here where it starts; `ConfigError` if records before that were removed.
        """
        register_writer(self.ledger, self.definition)

    def begin(self) -> None:
        """Take the writer over, and reconcile its ledger with its sink.

        Called again after an operator overtook the driver, and after an outage of the sink. Raises
        the errors of the sink.
        """
        with self._mutex:
            wait_for_operator(self.hub.backend, self.name, self.clock, self.stopping)
            ledger, writer = self.ledger, self.definition.writer
            ledger.take_over()
            self._prepare_sink()
            plan = ledger.plan
            writer.begin(str(self.name), None if plan is None else plan.id)
            forget_rewound(ledger, writer, self.hub)
            if plan is not None and plan.staged:
                self._publish_sealed(plan.staged, plan.written)
                # A plan that is delivered one at a time stays open: it may have more records.
                single = plan.kind is PlanKind.SINGLE
                plan = msgspec.structs.replace(plan, staged=(), written=()) if single else None
            reconcile(ledger, writer, self.hub)
            resuming = plan is not None and plan.kind is PlanKind.SINGLE
            state = self.state(WriterStatus.RESUMING if resuming else WriterStatus.RUNNING)
            if self.outage is not None:
                # The sink answers, and the writer has to write before it is known to be back.
                state = waiting_state(ledger.state, self.outage)
                self.outage = replace(self.outage, next_try_s=self.clock.monotonic())
            ledger.commit(plan=plan, state=state)

    def begin_or_wait(self) -> None:
        """Begin; if the sink cannot be reached the writer waits, else it fails."""
        with self._mutex:
            try:
                self.begin()
            except Exception as error:
                self.wait_or_fail(error)

    def _prepare_sink(self) -> None:
        """Check the sink if that was not possible before, and create it, once in a run."""
        if self._created:
            return
        self.ledger.store_placement(WorkPlacement())  # That of an earlier run is over.
        if self._check_sink is not None:
            self._check_sink()
        self.definition.writer.create_sink()
        self._created = True

    def overtaken(self) -> bool:
        """True if an operator intervened since `begin`. False while the hub cannot be read."""
        try:
            return self.ledger.overtaken()
        except Error as error:
            if not error.retryable:
                raise
            return False

    @property
    def _continues(self) -> bool:
        waits = self.outage is not None and not self.try_is_due
        return not (self.stopping.is_set() or self.failed or waits)

    def drain(self, ends: Mapping[Partition, int] | None = None) -> None:
        """Deliver all records, or all below `ends`, until stopped, failed or waiting.

        Begins again when an operator overtakes the driver, and when a try is due after an outage.
        """
        fenced = 0
        while True:
            # To its end, with what an error means: it must not replace what comes after it.
            with self._mutex:
                if not self._continues:
                    return
                try:
                    if fenced or self.outage is not None:
                        self.begin()
                    if not self._advance(ends):
                        if self.outage is not None:
                            self.store(None, self.state(WriterStatus.RUNNING))
                        return
                    fenced = 0
                except Fenced as error:
                    fenced += 1
                    if fenced > _FENCED_MAX:
                        self.fail(error)
                except Exception as error:
                    self.wait_or_fail(error)

    def wait_or_fail(self, error: Exception) -> None:
        """Wait for the sink if the error is an outage, else fail.

        Without the commit log the writer only stops: the run reports it.
        """
        if is_missing(error, self._log.name):
            self.log_deleted = True
            self.stopping.set()
            return
        if fault_of(error) is not Fault.OUTAGE:
            self.fail(error)
            return
        with self._mutex:
            if not self.failed:
                self.wait(describe_error(error), self.ledger.plan, 0, waits_for(error))

    def fail(self, error: Exception) -> None:
        """Fail with an error that no record caused, unless the writer has failed before."""
        if self.failed:
            return
        log_failure(str(self.name), error)
        with self._mutex:
            plan = self.ledger.plan
            self._store_if_possible(plan, self.failed_at(failure_of_error(error, plan)))

    def wait(
        self, reason: str, plan: WritePlan | None, rows: int, what: WaitsFor = WaitsFor.SINK
    ) -> None:
        """Wait for the sink, or fail if the writer has waited long enough.

        A try that delivered rows ends the outage before it.
        """
        before, limit_s = None if rows else self.outage, self._wait_s
        outage = after_failed_try(before, reason, self.clock, random.random(), limit_s, what)
        if is_over(outage, self.clock.monotonic(), limit_s):
            self._store_if_possible(plan, self.failed_at(failure_of_wait(outage), rows))
            return
        if before is None:
            _log.warning("writer %s waits for %s: %s", self.name, what, reason)
        self.outage = outage
        self._store_if_possible(plan, waiting_state(self.ledger.state, outage, rows))

    def _store_if_possible(self, plan: WritePlan | None, state: WriterState) -> None:
        """Store the state. If the hub itself fails, the stored state stays as it is."""
        try:
            self.store(plan, state)
        except Exception as error:
            _log.debug("the state of writer %s is not stored: %s", self.name, error)
            self.ledger.state = state

    def store(self, plan: WritePlan | None, state: WriterState, appends: Appends = ()) -> None:
        """Commit the plan and the state; any state but WAITING ends an outage."""
        self.ledger.commit(plan=plan, state=state, appends=appends)
        if self.outage is not None and state.state is not WriterStatus.WAITING:
            seconds = self.clock.monotonic() - self.outage.since_s
            _log.info("writer %s waited %.0f s for %s", self.name, seconds, self.outage.waits_for)
            self.outage = None

    def end(self) -> None:
        """Store that the writer is stopped, unless it failed or the hub cannot store it."""
        with self._mutex, contextlib.suppress(Error):
            if not self.failed:
                self.ledger.commit(plan=self.ledger.plan, state=self.state(WriterStatus.STOPPED))

    def _advance(self, ends: Mapping[Partition, int] | None) -> bool:
        """Execute the open plan, or make the next one and execute it; False if there is none."""
        ledger = self.ledger
        ledger.find_partitions()
        plan = ledger.plan or self._next_plan(ends)
        if plan is None:
            return False
        if plan is not ledger.plan:
            ledger.commit(plan=plan)
        if plan.kind is PlanKind.SINGLE:
            deliver_one_at_a_time(self, plan)
        else:
            deliver_bulk(self, plan)
        return True

    def _next_plan(self, ends: Mapping[Partition, int] | None) -> WritePlan | None:
        ledger = self.ledger
        streams = open_streams(self._log.view, ledger.progress)
        if ends is not None:
            streams = [s.until(ends.get(s.partition, 0)) for s in streams]
        pieces = self.engine.tasks if self.definition.writer.splits_streams else 1
        log, rows = self.hub.backend.log, self.definition.settings.batch_rows
        parts = next_parts(log, streams, ledger.progress, rows, pieces)
        return self.new_plan(PlanKind.BULK, parts) if parts else None

    def new_plan(self, kind: PlanKind, parts: tuple[PlanPart, ...]) -> WritePlan:
        """Return a plan of these parts. It is not stored."""
        return WritePlan(f"{self.ledger.fence.epoch}-{next(self._plans)}", kind, parts)

    def new_round(self, plan: WritePlan) -> PlanRound:
        """Return the next round of work on a plan."""
        fence = self.ledger.fence
        return PlanRound(
            writer=self.definition.writer,
            chain=self.definition.chain,
            name=str(self.name),
            log=self._log.view.definition.identity,
            fence=fence.name,
            epoch=fence.epoch,
            number=next(self._rounds),
            plan=plan.id,
        )

    def pending(self, part: PlanPart) -> PendingPart:
        """Return a part with its acknowledged offsets."""
        return PendingPart(part, acknowledged(self.ledger.progress[part.where], part.offsets))

    def publish(
        self, plan: WritePlan, staged: Sequence[StagedPart], written: Sequence[PlanPart]
    ) -> int:
        """Seal the plan and publish what is staged, then acknowledge what is written.

        Returns the number of rows that a later plan delivers again, because they do not go together
        with others.
        """
        writer = self.definition.writer
        unified = writer.unify(str(self.name), [each.staged for each in staged]) if staged else ()
        left_out = [each for each, kept in zip(staged, unified, strict=True) if kept is None]
        written = without_parts(written, [each.part for each in left_out])
        kept = tuple(each for each in unified if each is not None)
        if kept:
            self.ledger.commit(plan=msgspec.structs.replace(plan, staged=kept, written=written))
        self._publish_sealed(kept, written)
        return sum(each.staged.rows for each in left_out)

    def _publish_sealed(self, staged: Sequence[Staged], written: Iterable[PlanPart]) -> None:
        """Publish what a sealed plan has staged, then acknowledge what it has written."""
        if staged:
            self.definition.writer.publish(str(self.name), staged)
        for part in written:
            self.ledger.progress[part.where].ack(*part.offsets)

    def acknowledge(
        self, plan: WritePlan, staged: Sequence[StagedPart], written: Sequence[PlanPart], rows: int
    ) -> None:
        """Acknowledge records that were delivered one at a time; the plan stays open."""
        rows -= self.publish(plan, staged, written)
        self.store(plan, self.state(WriterStatus.RESUMING, rows))

    def handle_refused(self, plan: WritePlan, part: PlanPart, offset: int, error: str) -> None:
        """Park a refused record and continue, or fail at it."""
        where = part.where
        if self.definition.settings.on_error is not OnError.PARK:
            self.store(plan, self.failed_at(WriterFailure(error, where, offset)))
            return
        record = record_at(self.hub.backend.log, where, offset)
        letter = failed_record(record, where, str(self.name), error, self.clock.now_ms())
        self.ledger.skip(where, Offsets(offset, offset + 1))
        target = self._dead_letters.view.target.partition_of(letter.key)
        state = self.state(WriterStatus.RESUMING, parked=1)
        try:
            self.store(plan, state, appends=((target, (letter,)),))
        except Exception as error:
            self.ledger.read()  # Without its letter, the record is not acknowledged.
            view = self._dead_letters.view
            # The retry appends the letter to the new storage topic.
            if isinstance(error, Sealed):
                view.follow(error)
            elif not (isinstance(error, UnknownTopic) and view.follow_deletion()):
                raise

    def finish_plan(self) -> None:
        """Close a plan that was delivered one at a time; the next plan is bulk again."""
        self.store(None, self.state(WriterStatus.RUNNING))

    def state(self, status: WriterStatus, rows: int = 0, parked: int = 0) -> WriterState:
        """Return the next state, with rows delivered and records parked since the one before."""
        return next_state(self.ledger.state, status, self.clock.now_ms(), rows, parked)

    def failed_at(self, failure: WriterFailure, rows: int = 0) -> WriterState:
        """Return the state after a failure."""
        return failed_state(self.ledger.state, failure, self.clock.now_ms(), rows)
