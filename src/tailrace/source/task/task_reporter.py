"""What a task of a source reports."""

from __future__ import annotations

from tailrace import telemetry
from tailrace.reporting.sample import Sample
from tailrace.source.task.shared_run import SharedRun


class TaskReporter:
    """A `Reporter` of one task of a source."""

    def __init__(self, run: SharedRun) -> None:
        self._run = run

    def report(self) -> list[Sample]:
        """Return the samples of now."""
        run, labels = self._run, (self._run.name,)
        return [
            Sample(telemetry.SOURCE_ROWS, labels, run.rows),
            Sample(telemetry.SOURCE_BYTES, labels, run.bytes),
            Sample(telemetry.SOURCE_UNREADABLE, labels, run.bad),
            Sample(telemetry.SOURCE_UNITS, labels, run.units),
        ]

    def unready(self) -> None:
        """Return None: a task that was given nothing to read works, too."""
