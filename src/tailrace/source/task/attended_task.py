"""One run of a task, in the thread that called `Source.run`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from tailrace.clock import Clock
from tailrace.error_text import describe_error, storable
from tailrace.errors import Error
from tailrace.hub.hub import Hub
from tailrace.source.namespace_meter import NamespaceMeter
from tailrace.source.reader import Reader
from tailrace.source.report import NamespaceProgress, SourceOutcome, SourceProgress, SourceReport
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import read_splits
from tailrace.source.task.shared_run import SharedRun
from tailrace.source.task.task_record import TaskRecorder

_log: Final = logging.getLogger("tailrace.source")

IDLE_S: Final = 0.1
"""How long a task waits that has found nothing to do."""

RETRY_MAX_S: Final = 10.0
"""The longest time between two attempts while the hub does not answer, and the shortest between two
warnings of it or of the reader."""

UNMET_SHOWN_MAX: Final = 10
"""At most so many splits that wait for unknown ones are told of."""

PROGRESS_S: Final = 0.5
"""Seconds between two calls with the progress."""

PROGRESS_EVERY: Final = 20.0
"""Finding the progress takes at most one part in so many of the time."""

CHECK_SOURCE_S: Final = 2.0
"""How often the reader is asked for data, while it has found nothing to read."""

OnSourceProgress: TypeAlias = Callable[[SourceProgress], None]


class AttendedTask:
    """A run of a task: retries, progress, and the record of the task. For one thread, but for
    `stop`."""

    def __init__(
        self,
        hub: Hub,
        source: str,
        reader: Reader,
        recorder: TaskRecorder,
        on_progress: OnSourceProgress | None,
        clock: Clock,
    ) -> None:
        self._hub = hub
        self._source = source
        self._reader = reader
        self._recorder = recorder
        self._on_progress = on_progress
        self._clock = clock
        self._meter = NamespaceMeter(hub.backend, source, clock.monotonic)
        self._run: SharedRun | None = None
        self._stopping = False
        self._began = clock.monotonic()
        self._due = self._check_at = 0.0
        self._failed = self._stored = 0
        self._warn_at = 0.0
        self._error: str | None = None

    def stop(self) -> None:
        """Stop the run soon. Any thread and any signal handler may call it."""
        self._stopping = True
        if self._run is not None:
            self._run.wake()

    def attend(self, run: SharedRun, empty: str | None) -> SourceReport:
        """Run to the end, and close the run. `empty` is why there is nothing to read yet."""
        with run:
            self._run = run
            self._recorder.begin(run.task, empty)
            while not self._stopping and not run.done:
                self._turn(run)
            stopped_ms = self._clock.now_ms()
            outcome = SourceOutcome.DONE if run.done else SourceOutcome.STOPPED
            self._recorder.caught_up |= run.done
            self._due = 0.0
            self._show(run)
            if run.done:
                self._warn_of_unmet()
        # After the task has left: what others take over is not left unread.
        self._recorder.end(stopped_ms)
        return SourceReport(
            self._source, run.task, outcome, run.rows, run.bad, self._seconds, self._error
        )

    def _turn(self, run: SharedRun) -> None:
        busy = self._step(run)
        stored = run.rows + run.bad
        if stored != self._stored or self._error is not None:
            self._recorder.caught_up = False
        elif not busy:
            self._recorder.caught_up = True
        self._stored = stored
        self._recorder.rename(run.task)
        self._find_data(run)
        self._show(run)
        if not busy and not self._stopping:
            failed = min(self._failed, 10)
            run.wait(min(IDLE_S * 2**failed, RETRY_MAX_S) if failed else IDLE_S)

    def _step(self, run: SharedRun) -> bool:
        try:
            busy = run.step()
        except (Error, OSError) as error:
            if isinstance(error, Error) and not error.retryable:
                raise
            self._failed += 1
            self._error = storable(describe_error(error))
            if self._seconds >= self._warn_at:
                _log.warning("source %s retries: %s", self._source, self._error)
                self._warn_at = self._seconds + RETRY_MAX_S
            return False
        self._failed = 0
        if not run.failing:
            self._error = None
        return busy

    def _warn_of_unmet(self) -> None:
        """Tell of splits that were not read because they follow one that nobody has reported."""
        unmet = SplitGraph.of(read_splits(self._hub.backend, self._source)).unmet()
        for split_id, unknown in sorted(unmet.items())[:UNMET_SHOWN_MAX]:
            _log.warning(
                "source %s: split %r was not read: it follows %r, which no split has reported, or "
                "which was finished and removed before",
                self._source,
                split_id,
                unknown[0],
            )

    def _find_data(self, run: SharedRun) -> None:
        """Record that the source has something to read, once it has."""
        if self._recorder.record.waiting is None:
            return
        if run.rows or run.bad or self._has_data():
            self._recorder.found_data()

    def _has_data(self) -> bool:
        """Ask the reader, from time to time, if it has something to read."""
        if self._seconds < self._check_at:
            return False
        self._check_at = self._seconds + CHECK_SOURCE_S
        try:
            self._reader.check()
        except Error:
            return False
        return True

    def _show(self, run: SharedRun) -> None:
        if self._on_progress is None or self._seconds < self._due:
            return
        begun = self._seconds
        namespaces = self._namespaces()
        took = self._seconds - begun
        self._due = self._seconds + max(PROGRESS_S, PROGRESS_EVERY * took)
        self._on_progress(
            SourceProgress(
                source=self._source,
                task=run.task,
                leads=run.leads,
                tasks=run.tasks,
                units=run.units,
                rows=run.rows,
                bad=run.bad,
                seconds=self._seconds,
                rows_per_second=run.rows / max(self._seconds, 1e-9),
                caught_up=self._recorder.caught_up,
                namespaces=namespaces,
                waiting=self._recorder.record.waiting,
                retrying=self._error,
                stopping=self._stopping,
            )
        )

    def _namespaces(self) -> tuple[NamespaceProgress, ...]:
        try:
            return self._meter.look()
        except Error:
            return ()

    @property
    def _seconds(self) -> float:
        return self._clock.monotonic() - self._began
