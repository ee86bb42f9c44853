"""The last run of a pipeline, stored in the hub so that `status` can tell a stop from a kill.

    table readers/lake, key run: a `LastRun`

A live run is known by the hold that its process has. A run without a hold and without an end was
killed.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import msgspec

from tailrace.backend.contract import Backend, TableKey, Transaction
from tailrace.clock import Clock
from tailrace.errors import Error, HubReplaced
from tailrace.source.reader import Until

_log = logging.getLogger(__name__)


class LastRun(msgspec.Struct, frozen=True):
    """When a run began and ended, and how far its reader came.

    `follows` is True for a run that reads until it is stopped. `caught_up` is True if the reader
    had read everything that was there when it stopped. `waiting` is why it found nothing to read.
    `start_error` is why the run ended before its reader and writers started.
    """

    started_ms: int
    follows: bool
    ended_ms: int | None = None
    caught_up: bool = False
    waiting: str | None = None
    start_error: str | None = None


def find_last_run(backend: Backend, pipeline: str) -> LastRun | None:
    """Return the last run of a pipeline; None if none is stored."""
    stored = backend.table.get(*_key(pipeline))
    return None if stored is None else msgspec.json.decode(stored, type=LastRun)


def store_last_run(backend: Backend, pipeline: str, run: LastRun) -> None:
    """Store the last run. Only for the process that runs the pipeline."""
    backend.commit(Transaction(table={_key(pipeline): msgspec.json.encode(run)}))


class RunRecorder:
    """Stores the course of one run. An error of the hub is logged: the run reports its own.

    Any thread may call it: the reader may still stop while a run that took too long ends.
    """

    def __init__(self, backend: Backend, pipeline: str, until: Until, clock: Clock) -> None:
        self._backend = backend
        self._pipeline = pipeline
        self._clock = clock
        self._storing = threading.Lock()
        self.run = LastRun(clock.now_ms(), until is Until.STOPPED)

    def begin(self, waiting: str | None) -> None:
        """Store that the run has begun, and why its reader has nothing to read yet."""
        self._store(waiting=waiting)

    def found_data(self) -> None:
        """Store that the reader has found something to read."""
        if self.run.waiting is not None:
            self._store(waiting=None)

    def stop_reading(self, *, caught_up: bool) -> None:
        """Store how far the reader came."""
        self._store(caught_up=caught_up)

    def end(self) -> None:
        """Store that the run has ended, and was not killed."""
        self._store(ended_ms=self._clock.now_ms())

    def fail_start(self, error: str) -> None:
        """Store that the run has ended before it began, and why."""
        self._store(ended_ms=self._clock.now_ms(), start_error=error)

    def _store(self, **changes: Any) -> None:
        with self._storing:
            self.run = msgspec.structs.replace(self.run, **changes)
            try:
                store_last_run(self._backend, self._pipeline, self.run)
            except HubReplaced:
                pass  # The run ends with this error.
            except Error as error:
                _log.warning("the state of pipeline %s was not stored: %s", self._pipeline, error)


def _key(pipeline: str) -> TableKey:
    return TableKey(f"readers/{pipeline}", b"run")
