"""What a running pipeline reports of its reader and its writers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace import telemetry
from tailrace.clock import Clock, SystemClock
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.run_state import RunningWriter
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.reporting.sample import Sample

_STATES: Final = {each: each.name.lower() for each in WriterStatus if each is not WriterStatus.DONE}


class RunReporter:
    """A `Reporter` of one run of a pipeline."""

    def __init__(self, run: PipelineRun, clock: Clock | None = None) -> None:
        self._run = run
        self._clock = clock or SystemClock()

    def report(self) -> Iterator[Sample]:
        """Yield the samples of now."""
        labels, state = (self._run.definition.name,), self._run.state()
        yield Sample(telemetry.PIPELINE_RUNNING, labels, int(bool(state.writers)))
        yield Sample(telemetry.PIPELINE_ROWS, labels, state.rows_read)
        yield Sample(telemetry.PIPELINE_BYTES, labels, state.bytes_read)
        yield Sample(telemetry.PIPELINE_UNREADABLE, labels, state.bad_read)
        yield Sample(telemetry.PIPELINE_BLOCKED, labels, int(state.blocked_by is not None))
        for writer in state.writers:
            yield from self._of_writer(writer)

    def unready(self) -> str | None:
        """Return that the pipeline starts, if it does."""
        running = bool(self._run.state().writers)
        return None if running else f"pipeline {self._run.definition.name} is starting"

    def _of_writer(self, writer: RunningWriter) -> Iterator[Sample]:
        labels, state = (writer.name,), writer.state
        for status, name in _STATES.items():
            yield Sample(telemetry.WRITER_STATE, (*labels, name), int(state.state is status))
        waits = state.state is WriterStatus.WAITING
        waiting_ms = max(0, self._clock.now_ms() - state.since_ms) if waits else 0
        yield Sample(telemetry.WRITER_LAG, labels, writer.lag)
        yield Sample(telemetry.WRITER_ROWS, labels, state.rows)
        yield Sample(telemetry.WRITER_PARKED, labels, state.parked)
        yield Sample(telemetry.WRITER_WAITING, labels, waiting_ms / 1000)
