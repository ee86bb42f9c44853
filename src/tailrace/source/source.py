"""A source as users define and run it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TextIO, TypeAlias

from tailrace.clock import Clock, SystemClock
from tailrace.errors import Busy, Error, InvalidValue
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.reserved_names import COMMIT_LOG_SUFFIX, DEAD_LETTERS_SUFFIX
from tailrace.source.catalog import SourceEntry, absolute, register_source
from tailrace.source.preflight import check_reading
from tailrace.source.reader import Preview, Reader, Until, check_reader
from tailrace.source.report import (
    SourceOutcome,
    SourceProgress,
    SourceReport,
    namespace_progress,
)
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import read_splits
from tailrace.source.task.shared_run import SharedRun
from tailrace.topic.composite import check_short_name
from tailrace.topic.internal_topics import open_internal_topic
from tailrace.topic.lineage import PARTITIONS_MAX

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

_STARTING: Final = threading.Lock()
"""Held while a `Source` object checks that it has no other run. Not in the object, so that it can
be copied."""

OnSourceProgress: TypeAlias = Callable[[SourceProgress], None]


class Source:
    """A system that is read into a topic, by any number of tasks. Defining it opens nothing.

    The rows go to the commit log, the topic ``NAME.commits``, which pipelines and groups read. What
    cannot be read goes to ``NAME.dead-letters``. Each `run`, in any process, is one task: the tasks
    share the splits of the source.
    """

    def __init__(self, name: str, reader: Reader, *, partitions: int = 1, origin: str = "") -> None:
        self.name = check_short_name("source", name)
        self.reader = check_reader(reader)
        if not isinstance(partitions, int) or not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidValue("partitions", partitions, f"1 to {PARTITIONS_MAX}")
        self.partitions = partitions
        self.origin = origin
        """The file that defines the source; empty if none does."""
        self.of_pipeline = False
        """True for the source of a pipeline, which has its name."""
        self._running: _Attended | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Source:
        """Return the source of a TOML file; `ConfigError` names the file and the key.

        The file of a pipeline with ``reading = "shared"`` gives the source of the pipeline.
        """
        # A layer above, so it is imported by name, as plug-ins are.
        definition = import_module("tailrace.pipeline.definition.toml")
        found: Source = definition.load_source(path)
        return found

    @property
    def commit_log(self) -> str:
        """The topic that the rows go to."""
        return self.name + COMMIT_LOG_SUFFIX

    @property
    def dead_letters(self) -> str:
        """The topic of what could not be read."""
        return self.name + DEAD_LETTERS_SUFFIX

    def check(self) -> Preview:
        """Connect, check every setting that could silently lose data, and read some rows.

        Writes nothing. Raises an `Error` that says what is wrong.
        """
        return self.reader.check()

    def preflight(self, hub: Hub | None, *, allow_empty: bool) -> None:
        """Check everything that a run needs, and write nothing; `hub` is None if there is none yet.

        Raises what `run` raises before it reads.
        """
        check_reading(self.name, self.reader, hub, origin=self.origin, allow_empty=allow_empty)

    def run(
        self,
        hub: Hub,
        *,
        once: bool = False,
        allow_empty: bool = False,
        progress: OnSourceProgress | bool | None = None,
    ) -> SourceReport:
        """Read the source as one of its tasks, until it is stopped; with `once`, until all tasks
        have read what was there when they began. Among tasks without `once`, it does not end.

        The task joins those that run already, and takes its part of the splits from them. When a
        task ends or dies, the others take its splits. While the hub does not answer, or the reader
        raises an `OSError`, the task waits and tries again.

        Raises `NothingToRead` with `once` and without `allow_empty` if there is nothing to read,
        `ConfigError` or another `Error` if the source cannot be read, `Busy` if this object already
        runs, and `Fenced` if a pipeline takes the source over that reads it alone.

        By default, progress is shown on standard error if that is a terminal; with `progress` True
        always, with False never. A function gets a `SourceProgress` about twice a second, in this
        thread.
        """
        until = Until.NOW if once else Until.STOPPED
        if callable(progress):
            return self._attend(hub, until, allow_empty, progress)
        if progress or (progress is None and _has_terminal()):
            # Imported here: most programs have no terminal.
            from tailrace.source.display import SourceDisplay

            with SourceDisplay() as display:
                return self._attend(hub, until, allow_empty, display)
        return self._attend(hub, until, allow_empty, None)

    def stop(self) -> bool:
        """Stop the run in progress soon; False if there is none.

        Any thread and any signal handler may call it.
        """
        running = self._running
        if running is None:
            return False
        running.stopping = True
        return True

    def open_topics(self, hub: Hub, now_ms: int) -> tuple[Topic[Any], Topic[Any]]:
        """Return the commit log and the topic of dead letters; create them and the entry of the
        catalog if they do not exist. `TopicExists` if the log has another number of partitions."""
        opened = []
        for name, partitions in ((self.commit_log, self.partitions), (self.dead_letters, 1)):
            open_internal_topic(hub.backend, name, now_ms, partitions)
            opened.append(hub.create_topic(name, partitions=partitions, exist_ok=True))
        entry = SourceEntry(
            self.commit_log,
            self.dead_letters,
            type(self.reader).__name__,
            now_ms,
            absolute(self.origin),
            self.of_pipeline,
        )
        register_source(hub.backend.store, self.name, entry)
        log, letters = opened
        return log, letters

    def _attend(
        self, hub: Hub, until: Until, allow_empty: bool, on_progress: OnSourceProgress | None
    ) -> SourceReport:
        self.preflight(hub, allow_empty=allow_empty or until is Until.STOPPED)
        clock = SystemClock()
        log, letters = self.open_topics(hub, clock.now_ms())
        attended = _Attended(hub, self.name, on_progress, clock)
        with _STARTING:
            if self._running is not None:
                raise Busy(
                    f"this Source object already runs source {self.name}",
                    "stop() that run and wait for its end, or define another Source",
                )
            self._running = attended
        try:
            with SharedRun(hub, self.name, self.reader, log, letters, until, clock) as run:
                return attended.attend(run)
        finally:
            self._running = None


class _Attended:
    """One run of a task, in the thread that called `Source.run`."""

    def __init__(
        self, hub: Hub, source: str, on_progress: OnSourceProgress | None, clock: Clock
    ) -> None:
        self.stopping = False
        self._hub = hub
        self._source = source
        self._on_progress = on_progress
        self._clock = clock
        self._began = clock.monotonic()
        self._due = 0.0
        self._failed = 0
        self._warn_at = 0.0

    def attend(self, run: SharedRun) -> SourceReport:
        """Run to the end."""
        while not self.stopping and not run.done:
            busy = self._step(run)
            self._show(run, caught_up=not busy)
            if not busy:
                run.wait(IDLE_S if not self._failed else min(IDLE_S * 2**self._failed, RETRY_MAX_S))
        outcome = SourceOutcome.DONE if run.done else SourceOutcome.STOPPED
        self._due = 0.0
        self._show(run, caught_up=run.done)
        if run.done:
            self._warn_of_unmet()
        return SourceReport(self._source, run.task, outcome, run.rows, run.bad, self._seconds)

    def _step(self, run: SharedRun) -> bool:
        try:
            busy = run.step()
        except (Error, OSError) as error:
            if isinstance(error, Error) and not error.retryable:
                raise
            self._failed += 1
            if self._seconds >= self._warn_at:
                _log.warning("source %s retries: %s: %s", self._source, type(error).__name__, error)
                self._warn_at = self._seconds + RETRY_MAX_S
            return False
        self._failed = 0
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

    def _show(self, run: SharedRun, *, caught_up: bool) -> None:
        if self._on_progress is None or self._seconds < self._due:
            return
        self._due = self._seconds + PROGRESS_S
        try:
            namespaces = namespace_progress(read_splits(self._hub.backend, self._source))
        except Error:
            namespaces = ()
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
                caught_up=caught_up,
                namespaces=namespaces,
            )
        )

    @property
    def _seconds(self) -> float:
        return self._clock.monotonic() - self._began


def _has_terminal() -> bool:
    stderr: TextIO | None = sys.stderr  # None in a process without standard streams
    return stderr is not None and stderr.isatty()
