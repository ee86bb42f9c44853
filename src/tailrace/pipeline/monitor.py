"""Observing a run: its progress with rates, and its report at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.clock import Clock, SystemClock, utc_time
from tailrace.delivery.dead_letters.mailbox import Mailbox
from tailrace.pipeline.definition.definition import FollowedSource
from tailrace.pipeline.definition.settings import Engine
from tailrace.pipeline.engine.driver import hub_directory, spark_directory
from tailrace.pipeline.report import RunOutcome, RunProgress, RunReport, WriterReport
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.run_state import RunningWriter
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.writer_ledger import WriterName, WriterState, stored_state
from tailrace.source.reader import Until

_NEW: Final = WriterState()


class RunMonitor:
    """Observes a run from before its start. Rates are since the observation before.

    For one thread.
    """

    def __init__(self, run: PipelineRun, clock: Clock | None = None) -> None:
        self._run = run
        self._clock = clock or SystemClock()
        self._started = self._clock.monotonic()
        self._before = _stored_states(run)
        self._on_spark = any(each.engine is Engine.SPARK for each in run.definition.writers)
        self._last: dict[str, tuple[float, int]] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the monitor was made."""
        return self._clock.monotonic() - self._started

    def progress(self) -> RunProgress:
        """Return the run as it is now."""
        seconds, state = self.seconds, self._run.state()
        reader = self._run.definition.reader
        return RunProgress(
            pipeline=self._run.definition.name,
            seconds=round(seconds, 3),
            starting=None if state.writers else "Spark" if self._on_spark else "the writers",
            rows_read=state.rows_read,
            unreadable=state.bad_read,
            waiting=state.waiting,
            blocked_by=state.blocked_by,
            stopping=state.stopping,
            writers=tuple(
                self._writer(each, seconds, read=not state.reading) for each in state.writers
            ),
            follows=reader.name if isinstance(reader, FollowedSource) else None,
        )

    def report(self, outcome: RunOutcome) -> RunReport:
        """Return the run after its end. Rates are over the whole run."""
        self._last.clear()
        last, hub = self.progress(), self._run.hub
        log = spark_directory(hub_directory(hub)) / "spark.log"
        return RunReport(
            pipeline=last.pipeline,
            outcome=outcome,
            seconds=last.seconds,
            rows_read=last.rows_read,
            unreadable=last.unreadable,
            waiting=last.waiting,
            writers=last.writers,
            failures=tuple(self._run.failures()),
            outages=tuple(self._run.outages()),
            dead_letters=self._dead_letters(),
            spark_log=str(log) if self._on_spark else None,
            losses=tuple(self._run.losses),
            follows=last.follows,
        )

    def _dead_letters(self) -> int:
        hub, topic = self._run.hub, self._run.definition.dead_letters
        if topic not in hub.topics():
            return 0
        return sum(Mailbox(hub.topic(topic).view, topic).count_by_writer().values())

    def _writer(self, writer: RunningWriter, seconds: float, *, read: bool) -> WriterReport:
        name, state = writer.name, writer.state
        # A writer that has not started yet does not know its rows of earlier runs.
        before = self._before.get(name, _NEW)
        rows = max(0, state.rows - before.rows)
        ended = read and state.state is WriterStatus.STOPPED and self._run.until is Until.NOW
        since, rows_then = self._last.get(name, (0.0, 0))
        rate = (rows - rows_then) / (seconds - since) if seconds > since else 0.0
        self._last[name] = seconds, rows
        waits = state.state is WriterStatus.WAITING
        return WriterReport(
            name=name,
            state=WriterStatus.DONE if ended and not writer.lag else state.state,
            rows=rows,
            rows_per_second=round(max(0.0, rate), 1),
            lag=writer.lag,
            parked=max(0, state.parked - before.parked),
            position=state.position,
            error=state.error,
            since=utc_time(state.since_ms) if waits else None,
            next_try=utc_time(state.next_try_ms) if waits else None,
            waits_for=state.waits_for if waits else None,
        )


def _stored_states(run: PipelineRun) -> Mapping[str, WriterState]:
    """Return the stored state of each writer, by its full name."""
    names = (WriterName(run.definition.name, each.name) for each in run.definition.writers)
    return {str(name): stored_state(run.hub.backend, name) for name in names}
