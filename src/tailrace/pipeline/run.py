"""Running a pipeline: one thread reads, one drives each writer.

A writer that fails stops no other; a reader that fails ends the run, once the writers have finished
what is under way.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from tailrace.backend.embedded import EmbeddedBackend
from tailrace.clock import Clock, SystemClock
from tailrace.errors import Error
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.books import WriterState
from tailrace.pipeline.checking import check
from tailrace.pipeline.definition import CatchUp, OnError, PipelineDefinition
from tailrace.pipeline.deliver import told
from tailrace.pipeline.driving import Driver, DriverOf, drive_directly
from tailrace.pipeline.pressure import Pressure
from tailrace.pipeline.reader_failure import ReaderFailure, clear_failure, store_failure
from tailrace.pipeline.registry import find, hold_name, register, unregister
from tailrace.pipeline.writing import WriterRun
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun
from tailrace.topic.consumers import low_mark
from tailrace.topic.topic import Topic

_log = logging.getLogger(__name__)

IDLE_S: Final = 0.5
"""How long a thread sleeps at most before it looks again."""

COMPACT_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class WriterProgress:
    """A writer as a progress display shows it; `behind` is what it has left to deliver."""

    name: str
    state: WriterState
    behind: int


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A running pipeline. `held_by` names the writer that the reader waits for, if it does."""

    rows_read: int
    bad_read: int
    reading: bool
    held_by: str | None
    writers: tuple[WriterProgress, ...]


class Ending(Enum):
    """How a run ended."""

    DONE = "everything that was asked for is delivered"
    STOPPED = "stopped, and everything under way was finished"
    UNFINISHED = "stopped before everything under way was finished: that comes again"
    FAILED = "the reader or a writer failed"


class PipelineRun:
    """One run of a pipeline. `run` blocks; `stop` and `progress` are for other threads.

    It ends at `until`. `empty` is what its source says when there was nothing to read at the start.
    """

    def __init__(
        self,
        hub: Hub,
        definition: PipelineDefinition,
        *,
        until: Until,
        driver_of: DriverOf = drive_directly,
        clock: Clock | None = None,
    ) -> None:
        self.hub = hub
        self.definition = definition
        self.error: Exception | None = None
        self.empty: str | None = None
        self.until = until
        self._driver_of = driver_of
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        self._over = threading.Event()
        self._read_whole = threading.Event()
        self._ends: dict[Partition, int] | None = None
        self._source: SourceRun | None = None
        self._log_topic: Topic[bytes] | None = None
        self._writers: list[WriterRun] = []
        self._drivers: list[Driver] = []
        self._held_by: str | None = None

    def run(self) -> Ending:
        """Check everything, then read and write until done, stopped or failed.

        `ConfigError` when the preflight finds something, `Busy` when the pipeline runs elsewhere;
        both before anything has happened.
        """
        definition = self.definition
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        with self.hub.backend.hold(hold_name(definition.name), owner):
            self.empty = check(definition, self.hub)
            self._prepare()
            if self._stop.is_set():
                self.stop()  # asked for before there were writers to stop
            threads = [threading.Thread(target=self._read, name="reader", daemon=True)]
            threading.Thread(target=self._compact, name="compaction", daemon=True).start()
            for writer, driver in zip(self._writers, self._drivers, strict=True):
                name = str(writer.name)
                threads.append(
                    threading.Thread(
                        target=self._write, args=(writer, driver), name=name, daemon=True
                    )
                )
            for thread in threads:
                thread.start()
            try:
                return self._wait(threads)
            finally:
                self._over.set()

    def stop(self) -> None:
        """End soon: finish what is under way, within the pipeline's `stop_timeout`."""
        self._stop.set()
        for writer in self._writers:
            writer.stopping.set()

    def progress(self) -> RunProgress:
        """How far it is."""
        source, ends = self._source, self._log_ends()
        return RunProgress(
            rows_read=0 if source is None else source.rows,
            bad_read=0 if source is None else source.bad,
            reading=not self._read_whole.is_set(),
            held_by=self._held_by,
            writers=tuple(
                WriterProgress(str(writer.name), writer.books.state, writer.behind(ends))
                for writer in self._writers
            ),
        )

    def troubles(self) -> list[str]:
        """What failed, in a line each."""
        lines = [] if self.error is None else [f"reader: {told(self.error)}"]
        for writer in self._writers:
            state = writer.books.state
            if writer.failed:
                where = f" at {state.position}" if state.position else ""
                lines.append(f"writer {writer.name}{where}: {state.error}")
        return lines

    def _prepare(self) -> None:
        definition, hub = self.definition, self.hub
        self._log_topic = hub.create_topic(
            definition.commit_log, partitions=definition.partitions, exist_ok=True
        )
        hub.create_topic(definition.dead_letters, partitions=1, exist_ok=True)
        before = find(hub.backend.store, definition.name)
        # First of all, so that whoever is enrolled can be found and forgotten.
        register(hub.backend.store, definition)
        enrolled = set() if before is None else set(before.writers)
        try:
            for each in definition.writers:
                driver = self._driver_of(hub, definition, each)
                run = WriterRun(hub, definition, each, driver.engine, self._clock)
                run.enrol()
                enrolled.add(each.name)
                self._drivers.append(driver)
                self._writers.append(run)
        except Exception:
            unregister(hub.backend.store, definition.name, keeping=enrolled)
            raise

    def _wait(self, threads: list[threading.Thread]) -> Ending:
        reader, *writers = threads
        while any(thread.is_alive() for thread in threads) and not self._stop.wait(IDLE_S / 5):
            pass
        if self._stop.is_set():
            deadline = self._clock.monotonic() + self.definition.stop_timeout.total_seconds()
            for thread in (*writers, reader):
                thread.join(max(0.0, deadline - self._clock.monotonic()))
            if any(thread.is_alive() for thread in threads):
                for driver in self._drivers:
                    driver.abandon()
                return Ending.UNFINISHED
        if self.error is not None or any(writer.failed for writer in self._writers):
            return Ending.FAILED
        return Ending.STOPPED if self._stop.is_set() else Ending.DONE

    def _read(self) -> None:
        definition = self.definition
        try:
            self._catch_up()
            log_topic = self.hub.topic(definition.commit_log)
            dead = self.hub.topic(definition.dead_letters)
            self._source = source = SourceRun(
                self.hub,
                definition.name,
                definition.reader,
                log_topic,
                dead,
                self.until,
                self._clock,
            )
            try:
                clear_failure(self.hub.backend, definition.name)
                self._read_from(source)
            finally:
                source.close()
        except Exception as error:
            _log.exception("the reader of pipeline %s failed", definition.name)
            self.error = error
            self._keep_failure(error)
            self.stop()
        finally:
            self._ends = self._log_ends()
            self._read_whole.set()

    def _keep_failure(self, error: Exception) -> None:
        failure = ReaderFailure(self._clock.now_ms(), told(error))
        try:
            store_failure(self.hub.backend, self.definition.name, failure)
        except Exception as trouble:  # The hub itself is in trouble: that is told at the end.
            _log.warning("why the reader failed is not kept in the hub: %s", trouble)

    def _read_from(self, source: SourceRun) -> None:
        pressure = Pressure(self.definition.log_bytes_max)
        look_at, look_at_bytes = 0.0, 0
        while not self._stop.is_set() and not source.done:
            if self._clock.monotonic() >= look_at or source.bytes >= look_at_bytes:
                ends = self._log_ends()
                behind = {str(w.name): w.behind(ends) for w in self._writers if self._waits_for(w)}
                self._held_by = pressure.held_by(behind, source.rows, source.bytes)
                look_at = self._clock.monotonic() + IDLE_S
                look_at_bytes = source.bytes + self.definition.log_bytes_max // 10
            if self._held_by is not None or not self._step(source):
                self._stop.wait(IDLE_S / 5)

    def _step(self, source: SourceRun) -> bool:
        """Store a batch, if there is one and the hub can take it now."""
        try:
            return source.step()
        except Error as error:
            if not error.retryable:
                raise
            _log.warning("the reader of %s tries again: %s", self.definition.name, error)
            return False

    def _waits_for(self, writer: WriterRun) -> bool:
        """Whether a slow writer may hold the reader up: not one that nobody will help in time."""
        return self.until is Until.STOPPED or not writer.failed

    def _catch_up(self) -> None:
        """Under `catch_up = "all"`: wait until every writer has what was there at the start."""
        if self.definition.catch_up is not CatchUp.ALL:
            return
        ends = self._log_ends()
        while not self._stop.is_set() and any(
            self._waits_for(writer) and writer.behind(ends) for writer in self._writers
        ):
            self._stop.wait(IDLE_S / 5)

    def _write(self, run: WriterRun, driver: Driver) -> None:
        try:
            driver.drive(run, self._limit, lambda: self._finished(run))
        except Exception as error:
            run.fail(error)
        if run.failed and run.definition.on_error is OnError.STOP_ALL:
            self.stop()
        run.end()

    def _compact(self) -> None:
        """Now and then drop what every writer has, for as long as the run lasts."""
        backend = self.hub.backend
        while not self._over.wait(COMPACT_EVERY_S) and isinstance(backend, EmbeddedBackend):
            try:
                for partition in self._log_ends():
                    backend.compact(partition, partial(low_mark, backend, partition))
            except Error as error:
                _log.warning("%s could not be compacted: %s", self.definition.commit_log, error)

    def _limit(self) -> Mapping[Partition, int] | None:
        """Where writers end, once that is known."""
        return self._ends if self.until is Until.NOW else None

    def _finished(self, run: WriterRun) -> bool:
        """Whether a writer has nothing more to do in this run."""
        if self._stop.is_set() or (run.failed and run.definition.on_error is OnError.STOP_ALL):
            return True
        if self.until is Until.STOPPED or not self._read_whole.is_set():
            return False
        return run.failed or run.behind(self._ends or {}) == 0

    def _log_ends(self) -> dict[Partition, int]:
        if self._log_topic is None:
            return {}
        return {
            Partition(self._log_topic.name, storage.index, number): end
            for storage in self._log_topic.storage_topics
            for number, end in enumerate(storage.ends)
        }
