"""Running a pipeline: one thread reads, one thread drives each writer.

A writer that fails, or that waits for its sink, does not stop the others. A reader that fails ends
the run, after the writers have finished the batches in flight.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from tailrace.backend.capabilities import Compacts
from tailrace.clock import Clock, SystemClock
from tailrace.errors import Error, HubReplaced, NothingToRead, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.catalog import find, hold_name, register
from tailrace.pipeline.commit_log import describe_deletion, open_topics
from tailrace.pipeline.definition.definition import FollowedSource, PipelineDefinition
from tailrace.pipeline.definition.settings import OnError
from tailrace.pipeline.engine.driver import Driver, DriverOf, direct_driver
from tailrace.pipeline.failed_start import store_failed_start
from tailrace.pipeline.last_run import RunRecorder
from tailrace.pipeline.log_ends import LogEnds
from tailrace.pipeline.preflight import Preflight, check, check_sink
from tailrace.pipeline.reading.pipeline_reading import PipelineReading
from tailrace.pipeline.reading.reader_failure import ReaderFailure, store_failure
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.run_state import RunningWriter, RunState
from tailrace.pipeline.writing.attempt import describe_error
from tailrace.pipeline.writing.fault import is_missing
from tailrace.pipeline.writing.writer_run import WriterRun
from tailrace.source.reader import Until
from tailrace.topic.consumers import low_mark

_log = logging.getLogger(__name__)

IDLE_S: Final = 0.5
"""The longest time that a thread sleeps between two polls."""

COMPACT_EVERY_S: Final = 60.0


class PipelineRun:
    """One run of a pipeline. `run` blocks; other threads may call `stop` and `state`.

    `until` says when the run ends. A run until now of a source with nothing to read is refused,
    unless `allow_empty`. A writer that has waited `wait_s` for its sink fails; None lets it wait
    without end. `master` is the Spark master that `driver_of` was given, for the catalog.
    """

    def __init__(
        self,
        hub: Hub,
        definition: PipelineDefinition,
        *,
        until: Until,
        driver_of: DriverOf = direct_driver,
        allow_empty: bool = False,
        wait_s: float | None = None,
        master: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.hub = hub
        self.definition = definition
        self.error: Exception | None = None
        self.losses: list[str] = []
        """A sentence for each writer that lost records with a commit log that was deleted."""
        self.until = until
        self._driver_of = driver_of
        self._allow_empty = allow_empty or until is Until.STOPPED
        self._wait_s = wait_s
        self._master = master
        self._clock = clock or SystemClock()
        self._recorder = RunRecorder(hub.backend, definition.name, until, self._clock)
        self._stop = threading.Event()
        self._stop_asked = False
        self._ended = threading.Event()
        self._all_read = threading.Event()
        self._ends: dict[Partition, int] | None = None
        self._log_ends = LogEnds()
        self._writers: list[WriterRun] = []
        self._drivers: list[Driver] = []
        self._reading = PipelineReading(
            hub,
            definition,
            until,
            clock=self._clock,
            recorder=self._recorder,
            log_ends=self._log_ends,
            stop=self._stop,
            waited_for=lambda: filter(self._waits_for, self._writers),
        )

    def run(self) -> RunOutcome:
        """Check everything, then read and write until done, stopped or failed.

        Raises, before the run starts, `ConfigError` if the preflight fails or there is nothing to
        read, `BackendUnavailable` if the master of Spark cannot be reached, and `Busy` if another
        process runs the pipeline.
        """
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        with self.hub.backend.hold(hold_name(self.definition.name), owner):
            preflight = self._check()
            self._prepare(preflight.unreachable)
            self._recorder.begin(preflight.empty)
            if self._stop.is_set():
                self._end()  # `stop` was called before there were writers to stop.
            _start("compaction", self._compact)
            threads = [_start("reader", self._read)]
            for writer, driver in zip(self._writers, self._drivers, strict=True):
                threads.append(_start(str(writer.name), partial(self._write, writer, driver)))
            try:
                return self._wait(threads)
            finally:
                self._ended.set()
                self._recorder.end()

    def stop(self) -> None:
        """Stop soon. Writers finish the batches in flight within the pipeline's `stop_timeout`."""
        self._stop_asked = True
        self._end()

    def _end(self) -> None:
        self._stop.set()
        self._reading.wake()
        for writer in self._writers:
            writer.stopping.set()

    def state(self) -> RunState:
        """Return the run as it is now."""
        reading, ends = self._reading, self._log_ends.read_if_possible()
        return RunState(
            rows_read=reading.rows,
            bytes_read=reading.bytes,
            bad_read=reading.bad,
            reading=not self._all_read.is_set(),
            waiting=self._recorder.run.waiting,
            blocked_by=reading.blocked_by,
            stopping=self._stop_asked,
            writers=tuple(
                RunningWriter(str(writer.name), writer.ledger.state, writer.ledger.lag(ends))
                for writer in self._writers
            ),
        )

    def failures(self) -> list[str]:
        """Return the failures, a line each."""
        lines = [] if self.error is None else [f"reader: {self._describe(self.error)}"]
        for writer in self._writers:
            state = writer.ledger.state
            if writer.failed:
                where = f" at {state.position}" if state.position else ""
                lines.append(f"writer {writer.name}{where}: {state.error}")
        return lines

    def outages(self) -> list[str]:
        """Return the sinks that writers wait for, a line each."""
        return [
            f"writer {writer.name} waits for {outage.waits_for}: {outage.reason}"
            for writer in self._writers
            if (outage := writer.outage) is not None
        ]

    def _check(self) -> Preflight:
        """Check everything, before anything is written."""
        try:
            return check(self.definition, self.hub, allow_empty=self._allow_empty)
        except NothingToRead as nothing:
            # Stored only for a pipeline that has run before: another one is not in the catalog.
            if find(self.hub.backend.store, self.definition.name) is not None:
                self._store_failure(nothing)
            raise

    def _prepare(self, unreachable: Collection[str]) -> None:
        definition, hub = self.definition, self.hub
        self._log_ends.log, self.losses = open_topics(hub, definition, self._clock.now_ms())
        for line in self.losses:
            _log.warning("%s", line)
        before = find(hub.backend.store, definition.name)
        # Before the ledgers are created, so that an operator can find and forget a writer.
        register(hub.backend.store, definition, self._master)
        registered = set() if before is None else set(before.writers)
        try:
            for each in definition.writers:
                driver = self._driver_of(hub, definition, each)
                checks = partial(check_sink, definition, each, hub)
                run = WriterRun(
                    hub,
                    definition,
                    each,
                    driver.engine,
                    self._clock,
                    wait_s=self._wait_s,
                    check_sink=checks if each.name in unreachable else None,
                )
                run.register()
                registered.add(each.name)
                self._drivers.append(driver)
                self._writers.append(run)
        except Exception as error:
            store_failed_start(
                hub.backend.store, definition.name, self._recorder, error, registered
            )
            raise

    def _wait(self, threads: list[threading.Thread]) -> RunOutcome:
        reader, *writers = threads
        while any(thread.is_alive() for thread in threads) and not self._stop.wait(IDLE_S / 5):
            pass
        if self._stop.is_set():
            deadline = (
                self._clock.monotonic() + self.definition.settings.stop_timeout.total_seconds()
            )
            for thread in (*writers, reader):
                thread.join(max(0.0, deadline - self._clock.monotonic()))
            if any(thread.is_alive() for thread in threads):
                for driver in self._drivers:
                    driver.abandon()
                return RunOutcome.UNFINISHED
        if self.error is not None or any(writer.failed for writer in self._writers):
            return RunOutcome.FAILED
        if any(writer.outage is not None for writer in self._writers):
            return RunOutcome.WAITING
        return RunOutcome.STOPPED if self._stop.is_set() else RunOutcome.DONE

    def _read(self) -> None:
        try:
            self._reading.read()
        except Exception as error:
            self._fail(error)
        finally:
            self._ends = self._final_ends()
            self._all_read.set()

    def _fail(self, error: Exception) -> None:
        """End the run, because the reader cannot continue. Only the first failure counts."""
        if self.error is not None:
            return
        self.error = error
        name = self.definition.name
        if isinstance(error, HubReplaced):  # It ends the run, and nothing can be stored.
            _log.error("pipeline %s ends: %s", name, error)
        else:
            unexpected = None if is_missing(error, self.definition.commit_log) else error
            reason = f": {self._describe(error)}" if unexpected is None else ""
            _log.error("the reader of pipeline %s failed%s", name, reason, exc_info=unexpected)
            self._store_failure(error)
        self._end()

    def _describe(self, error: Exception) -> str:
        if is_missing(error, self.definition.commit_log):
            return describe_deletion(self.definition)
        return describe_error(error)

    def _store_failure(self, error: Exception) -> None:
        failure = ReaderFailure(self._clock.now_ms(), self._describe(error))
        try:
            store_failure(self.hub.backend, self.definition.name, failure)
        except Exception as unstored:  # The hub itself fails; the run reports that at its end.
            _log.warning("the failure of the reader could not be stored in the hub: %s", unstored)

    def _waits_for(self, writer: WriterRun) -> bool:
        """True if the reader waits for a slow writer.

        A run that ends by itself does not wait for a failed writer.
        """
        return self.until is Until.STOPPED or not writer.failed

    def _write(self, run: WriterRun, driver: Driver) -> None:
        try:
            driver.drive(run, self._limit, lambda: self._finished(run))
        except Exception as error:
            run.fail(error)
        if run.failed and run.definition.settings.on_error is OnError.STOP_ALL:
            self._end()
        run.end()

    def _compact(self) -> None:
        """Compact the commit log from time to time, until the run ends."""
        backend = self.hub.backend
        if isinstance(self.definition.reader, FollowedSource):
            return  # Other pipelines, which have not begun yet, may want the records.
        while not self._ended.wait(COMPACT_EVERY_S) and isinstance(backend, Compacts):
            try:
                for partition in self._log_ends.read():
                    backend.compact(partition, partial(low_mark, backend, partition))
            except Error as error:
                _log.warning("could not compact %s: %s", self.definition.commit_log, error)

    def _limit(self) -> Mapping[Partition, int] | None:
        """Return the end offsets of the writers, once they are known."""
        return self._ends if self.until is Until.NOW else None

    def _finished(self, run: WriterRun) -> bool:
        """True if a writer has nothing left to do in this run."""
        if run.log_deleted and not self._stop.is_set():
            self._fail(UnknownTopic(self.definition.commit_log, self.hub.backend.name))
        if self._stop.is_set() or (
            run.failed and run.definition.settings.on_error is OnError.STOP_ALL
        ):
            return True
        if self.until is Until.STOPPED or not self._all_read.is_set():
            return False
        # A sink that cannot be reached may lack records that the ledger has.
        return run.failed or (run.outage is None and run.ledger.lag(self._ends or {}) == 0)

    def _final_ends(self) -> dict[Partition, int]:
        """Return the end offsets of the commit log after the last read; waits out an outage.

        The last known ones if the log was deleted, or if the run is stopped.
        """
        while True:
            try:
                return self._log_ends.read()
            except UnknownTopic:
                return self._log_ends.known
            except Error as error:
                if not error.retryable:
                    self._fail(error)
                if self._stop.wait(IDLE_S / 5):
                    return self._log_ends.known


def _start(name: str, act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=act, name=name, daemon=True)
    thread.start()
    return thread
