"""A source as users define and run it."""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from typing import Any, Final, TextIO

from tailrace.clock import SystemClock
from tailrace.errors import Busy, InvalidValue
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.reporting.reporters import reporters_of
from tailrace.reserved_names import COMMIT_LOG_SUFFIX, DEAD_LETTERS_SUFFIX
from tailrace.source.catalog import SourceEntry, absolute, check_source_name, register_source
from tailrace.source.preflight import check_reading
from tailrace.source.reader import Preview, Reader, Until, check_reader
from tailrace.source.report import SourceReport
from tailrace.source.task.attended_task import AttendedTask, OnSourceProgress
from tailrace.source.task.shared_run import SharedRun
from tailrace.source.task.task_record import TaskRecorder
from tailrace.source.task.task_reporter import TaskReporter
from tailrace.topic.composite import check_short_name
from tailrace.topic.internal_topics import open_internal_topic
from tailrace.topic.lineage import PARTITIONS_MAX

_STARTING: Final = threading.Lock()
"""Held while a `Source` object checks that it has no other run. Not in the object, so that it can
be copied."""


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
        self._running: AttendedTask | None = None

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

    def preflight(self, hub: Hub | None, *, allow_empty: bool) -> str | None:
        """Check everything that a run needs, and write nothing; `hub` is None if there is none yet.

        Returns why there is nothing to read, None if there is something. Raises what `run` raises
        before it reads.
        """
        if hub is not None:
            check_source_name(hub.backend.store, self.name, of_pipeline=self.of_pipeline)
        return check_reading(
            self.name, self.reader, hub, origin=self.origin, allow_empty=allow_empty
        )

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
            return self.attend(hub, until, allow_empty, progress)
        if progress or (progress is None and _has_terminal()):
            # Imported here: most programs have no terminal.
            from tailrace.source.display import SourceDisplay

            with SourceDisplay() as display:
                return self.attend(hub, until, allow_empty, display)
        return self.attend(hub, until, allow_empty, None)

    def stop(self) -> bool:
        """Stop the run in progress soon; False if there is none.

        Any thread and any signal handler may call it.
        """
        running = self._running
        if running is None:
            return False
        running.stop()
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

    def attend(
        self, hub: Hub, until: Until, allow_empty: bool, on_progress: OnSourceProgress | None
    ) -> SourceReport:
        """Run one task; see `run`."""
        clock = SystemClock()
        recorder = TaskRecorder(hub.backend, self.name, clock, follows=until is Until.STOPPED)
        attended = AttendedTask(hub, self.name, self.reader, recorder, on_progress, clock)
        with _STARTING:
            if self._running is not None:
                raise Busy(
                    f"this Source object already runs source {self.name}",
                    "stop() that run and wait for its end, or define another Source",
                )
            self._running = attended
        try:
            with recorder.recording_failure():
                empty = self.preflight(hub, allow_empty=allow_empty or until is Until.STOPPED)
                log, letters = self.open_topics(hub, clock.now_ms())
                run = SharedRun(hub, self.name, self.reader, log, letters, until, clock)
                with reporters_of(hub.backend).reporting(TaskReporter(run)):
                    return attended.attend(run, empty)
        finally:
            self._running = None


def _has_terminal() -> bool:
    stderr: TextIO | None = sys.stderr  # None in a process without standard streams
    return stderr is not None and stderr.isatty()
