"""Driving one writer: plan, carry out, acknowledge; and after a failure one record at a time.

The ledger is the truth of what is delivered, and a sink that keeps a record of its own is the
truth of what that sink holds. Everything is committed under the writer's fence, so two drivers
cannot both move it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tailrace.clock import Clock
from tailrace.errors import Fenced, Sealed
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.books import Books, Standing, State, WriterName, WriterState
from tailrace.pipeline.dead_letters import dead_letter
from tailrace.pipeline.definition import OnError, PipelineDefinition, WriterDefinition
from tailrace.pipeline.deliver import Report, told
from tailrace.pipeline.engine import Assignment, PlanEngine, Work
from tailrace.pipeline.enrolling import enrol
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.plan import (
    Part,
    Plan,
    PlanKind,
    acknowledged,
    left_over,
    next_parts,
    open_streams,
)
from tailrace.pipeline.reconciling import forget_rewound, reconcile
from tailrace.pipeline.single import deliver_singly
from tailrace.pipeline.trouble import Trouble, trouble_of
from tailrace.pipeline.writer import Staged
from tailrace.topic.reading import record_at

_log = logging.getLogger(__name__)

_FENCED_MAX: Final = 10
"""So often in a row an operator may intervene; beyond that somebody else drives the same sink."""

_OPERATOR_S: Final = 5.0
_OPERATOR_LOOK_S: Final = 0.01
"""How long a driver lets an operator finish, and how often it looks."""


class WriterRun:
    """One writer of a running pipeline. `drain` may be called from any thread.

    It is `failed` after trouble, until an operator intervenes.
    """

    def __init__(
        self,
        hub: Hub,
        pipeline: PipelineDefinition,
        definition: WriterDefinition,
        engine: PlanEngine,
        clock: Clock,
    ) -> None:
        self.name = WriterName(pipeline.name, definition.name)
        self.definition = definition
        self.stopping = threading.Event()
        self.hub = hub
        self.clock = clock
        self.engine = engine
        self.progress_interval_s = pipeline.progress_interval.total_seconds()
        self._log = hub.topic(pipeline.commit_log)
        self._dead = hub.topic(pipeline.dead_letters)
        self.books = Books(hub.backend, self.name, self._log.view)
        self._rounds = itertools.count(1)
        self._plans = itertools.count(1)
        self._mutex = threading.Lock()

    @property
    def failed(self) -> bool:
        """Whether it waits for an operator."""
        return self.books.state.state is State.FAILED

    def enrol(self) -> None:
        """Count it in as a consumer of the commit log, so that nothing it has not delivered goes.

        Where it has never run, this is where it learns where to begin; `ConfigError` when that is
        no longer there.
        """
        enrol(self.books, self.definition)

    def begin(self) -> None:
        """Take the writer over, and bring its ledger and its sink into agreement.

        Again after an operator overtook it. Raises what the sink raises.
        """
        self._let_operators_finish()
        with self._mutex:
            books, writer = self.books, self.definition.writer
            books.take()
            plan = books.plan
            writer.begin(str(self.name), None if plan is None else plan.id)
            forget_rewound(books, writer, self.hub)
            if plan is not None and plan.staged:
                self._publish(plan, plan.staged, plan.written)
                single = plan.kind is PlanKind.SINGLE  # It stays open: there may be more of it.
                plan = msgspec.structs.replace(plan, staged=(), written=()) if single else None
            reconcile(books, writer, self.hub)
            resuming = plan is not None and plan.kind is PlanKind.SINGLE
            books.commit(plan=plan, state=self._state(State.RESUMING if resuming else None))

    def _let_operators_finish(self) -> None:
        """Without this, whoever overtakes a driver would be overtaken before anything is written.

        The fence alone decides who writes, so not to wait for ever does no harm.
        """
        deadline = self.clock.monotonic() + _OPERATOR_S
        while self.hub.backend.holder(self.name.operator) is not None:
            if self.clock.monotonic() >= deadline or self.stopping.wait(_OPERATOR_LOOK_S):
                return

    def overtaken(self) -> bool:
        """Whether an operator intervened since `begin`."""
        return self.books.overtaken()

    def drain(self, ends: Mapping[Partition, int] | None = None) -> None:
        """Deliver all there is, or all below `ends`, until stopped or in trouble.

        When an operator overtakes it, it begins anew.
        """
        fenced = 0
        while not self.stopping.is_set() and not self.failed:
            try:
                if fenced:
                    self.begin()
                with self._mutex:
                    if not self._advance(ends):
                        return
                fenced = 0
            except Fenced as error:
                fenced += 1
                if fenced > _FENCED_MAX:
                    self.fail(error)
            except Exception as error:
                self.fail(error)

    def fail(self, error: Exception) -> None:
        """Stop here: something went wrong that no record is to blame for."""
        _log.warning("writer %s failed", self.name, exc_info=error)
        trouble = Trouble(told(error))
        with self._mutex:
            try:
                self.books.commit(plan=self.books.plan, state=self._failed(trouble))
            except Exception:  # The hub itself is in trouble: what is stored stays as it is.
                self.books.state = self._failed(trouble)

    def end(self) -> None:
        """Say in the hub that it is no longer driven."""
        with self._mutex, contextlib.suppress(Fenced):
            if not self.failed:
                self.books.commit(plan=self.books.plan, state=self._state(State.STOPPED))

    def behind(self, ends: Mapping[Partition, int]) -> int:
        """About how many records below `ends` are not acknowledged; 0 when all are."""
        standings = self.books.standings
        behind = 0
        for where, end in ends.items():
            mark, above = standings.get(where, Standing(0, 0))
            behind += max(1, end - mark - above) if mark < end else 0
        return behind

    def _advance(self, ends: Mapping[Partition, int] | None) -> bool:
        """Carry out the open plan, or make the next one and do; False when there is nothing."""
        books = self.books
        books.find_partitions()
        plan = books.plan or self._next_plan(ends)
        if plan is None:
            return False
        if plan is not books.plan:
            books.commit(plan=plan)
        if plan.kind is PlanKind.SINGLE:
            deliver_singly(self, plan)
        else:
            self._deliver_bulk(plan)
        return True

    def _next_plan(self, ends: Mapping[Partition, int] | None) -> Plan | None:
        books = self.books
        streams = open_streams(self._log.view, books.progress)
        if ends is not None:
            streams = [s.until(ends.get(s.partition, 0)) for s in streams]
        pieces = self.engine.tasks if self.definition.writer.splits_streams else 1
        log, rows = self.hub.backend.log, self.definition.batch_rows
        parts = next_parts(log, streams, books.progress, rows, pieces)
        return self.new_plan(PlanKind.BULK, parts) if parts else None

    def new_plan(self, kind: PlanKind, parts: tuple[Part, ...]) -> Plan:
        """A plan of these parts, not yet stored."""
        return Plan(f"{self.books.fence.epoch}-{next(self._plans)}", kind, parts)

    def work(self, plan: Plan) -> Work:
        """The next round of work, for a plan."""
        fence = self.books.fence
        return Work(
            writer=self.definition.writer,
            chain=self.definition.chain,
            name=str(self.name),
            log=self._log.view.definition.identity,
            fence=fence.name,
            epoch=fence.epoch,
            round=next(self._rounds),
            plan=plan.id,
        )

    def assigned(self, part: Part) -> Assignment:
        """A part with what is acknowledged of it."""
        return Assignment(part, acknowledged(self.books.progress[part.where], part.offsets))

    def _deliver_bulk(self, plan: Plan) -> None:
        reports = self.engine.run(
            self.work(plan), [self.assigned(part) for part in plan.parts], self.stopping
        )
        if any(report.fenced for report in reports):
            raise Fenced(self.books.fence.name, self.books.fence.epoch, self.books.fence.epoch + 1)
        written = [
            Part(part.partition, *offsets)
            for part, report in zip(plan.parts, reports, strict=True)
            for offsets in report.written
        ]
        staged = tuple(staged for report in reports for staged in report.staged)
        self._publish(plan, staged, written)
        rows = sum(report.rows for report in reports)
        if any(report.failed for report in reports):
            self._after_failure(plan, reports, rows)
        else:
            self.books.commit(plan=None, state=self._state(State.RUNNING, rows))

    def _after_failure(self, plan: Plan, reports: Sequence[Report], rows: int) -> None:
        """What failed comes again one at a time: at once where bad records are parked, or when
        somebody has looked at it. What was not tried is left to the plans after that."""
        failed = [
            Part(part.partition, part.start, report.failed_below or part.end)
            for part, report in zip(plan.parts, reports, strict=True)
            if report.failed
        ]
        single = self.new_plan(PlanKind.SINGLE, left_over(failed, self.books.progress))
        parks = self.definition.on_error is OnError.PARK
        if parks and not any(report.sink_failed for report in reports):
            self.books.commit(plan=single, state=self._state(State.RESUMING, rows))
            return
        trouble = trouble_of(zip(plan.parts, reports, strict=True))
        self.books.commit(plan=single, state=self._failed(trouble, rows))

    def _publish(self, plan: Plan, staged: Sequence[Staged], written: Iterable[Part]) -> None:
        """Make what is staged visible, once it is decided, and acknowledge what is written."""
        written = tuple(written)
        if staged:
            if not plan.staged:
                sealed = msgspec.structs.replace(plan, staged=tuple(staged), written=written)
                self.books.commit(plan=sealed)
            self.definition.writer.publish(str(self.name), staged)
        for part in written:
            self.books.progress[part.where].ack(*part.offsets)

    def settle(
        self, plan: Plan, staged: Sequence[Staged], written: Iterable[Part], rows: int
    ) -> None:
        """Acknowledge records that were delivered one at a time; the plan stays open."""
        self._publish(plan, staged, written)
        self.books.commit(plan=plan, state=self._state(State.RESUMING, rows))

    def trouble_with(self, plan: Plan, part: Part, offset: int, error: str) -> None:
        """A single record was refused: park it and go on, or stop here."""
        where = part.where
        if self.definition.on_error is not OnError.PARK:
            self.books.commit(plan=plan, state=self._failed(Trouble(error, where, offset)))
            return
        record = record_at(self.hub.backend.log, where, offset)
        letter = dead_letter(record, where, str(self.name), error, self.clock.now_ms())
        self.books.skip(where, Offsets(offset, offset + 1))
        target = self._dead.view.target.partition_of(letter.key)
        state = self._state(State.RESUMING, parked=1)
        try:
            self.books.commit(plan=plan, state=state, appends=((target, (letter,)),))
        except Exception as error:
            self.books.read()  # Without its letter the record is not acknowledged either.
            if not isinstance(error, Sealed):
                raise
            self._dead.view.follow(error)  # The record comes again, and its letter goes there.

    def finished_single(self) -> None:
        """All of a plan was delivered one at a time: bulk again."""
        self.books.commit(plan=None, state=self._state(State.RUNNING))

    def _state(self, state: State | None, rows: int = 0, parked: int = 0) -> WriterState:
        before = self.books.state
        chosen = state or State.RUNNING
        since_ms = before.since_ms if before.state is chosen else self.clock.now_ms()
        return WriterState(chosen, before.rows + rows, before.parked + parked, since_ms)

    def _failed(self, trouble: Trouble, rows: int = 0) -> WriterState:
        return msgspec.structs.replace(
            self._state(State.FAILED, rows), error=trouble.error, position=trouble.position
        )
