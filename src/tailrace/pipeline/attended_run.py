"""A run in a thread of its own, attended by the thread that called `Pipeline.run`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from tailrace.pipeline.monitor import RunMonitor
from tailrace.pipeline.report import RunOutcome, RunProgress, RunReport
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.run_reporter import RunReporter
from tailrace.reporting.reporters import reporters_of

OnProgress: TypeAlias = "Callable[[RunProgress], None]"
"""Gets the progress of a run: about twice a second, and once at its end."""

POLL_S: Final = 0.1
"""The longest time until a stop or the end of the run is noticed."""

PROGRESS_S: Final = 0.5
"""Seconds between two calls with the progress."""


class AttendedRun:
    """One run, which any thread and any signal handler may stop.

    `stop` only sets a flag that the attending thread polls: a signal handler may interrupt that
    thread anywhere, also where the thread holds the lock of an event.
    """

    def __init__(self, run: PipelineRun) -> None:
        self._run = run
        self._monitor = RunMonitor(run)
        self._stopped = False
        self._outcome: RunOutcome | BaseException | None = None
        self._ended = threading.Event()

    def stop(self) -> None:
        """Ask the run to stop. Return at once."""
        self._stopped = True

    def attend(self, on_progress: OnProgress | None) -> RunReport:
        """Run to the end, calling `on_progress` in this thread, and return the report.

        Raises the error that kept the run from starting. An exception in this thread, such as
        `KeyboardInterrupt` or an error of `on_progress`, stops the run as `stop` does, and is
        raised after the run has ended. A second one is raised at once.
        """
        with reporters_of(self._run.hub.backend).reporting(RunReporter(self._run)):
            return self._attended(on_progress)

    def _attended(self, on_progress: OnProgress | None) -> RunReport:
        name = f"pipeline {self._run.definition.name}"
        threading.Thread(target=self._work, name=name, daemon=True).start()
        try:
            self._attend(on_progress)
        except BaseException:
            self._run.stop()
            self._ended.wait()
            raise
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._monitor.report(self._outcome)

    def _attend(self, on_progress: OnProgress | None) -> None:
        due_s = 0.0
        stopping = False
        while not self._ended.wait(POLL_S):
            if self._stopped and not stopping:
                stopping = True
                self._run.stop()
                due_s = 0.0
            if on_progress is not None and self._monitor.seconds >= due_s:
                due_s = self._monitor.seconds + PROGRESS_S
                on_progress(self._monitor.progress())
        if on_progress is not None and isinstance(self._outcome, RunOutcome):
            on_progress(self._monitor.progress())

    def _work(self) -> None:
        try:
            self._outcome = self._run.run()
        except BaseException as error:
            self._outcome = error
        finally:
            self._ended.set()
