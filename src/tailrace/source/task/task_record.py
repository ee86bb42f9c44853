"""What each task of a source stores about itself, so that `status` can tell a stop from a kill.

    table source-tasks/NAME, key TASK: a `TaskRecord`

Nothing is decided by it. A task that begins removes the records of tasks that do not run any more;
one that ends removes those of tasks that ended while it still read, because it took their splits.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from tailrace.backend.contract import Backend, TableKey, Transaction
from tailrace.backend.table_scan import scan_all
from tailrace.clock import Clock
from tailrace.error_text import describe_error, storable
from tailrace.errors import Error
from tailrace.group.store.presence import members
from tailrace.source.catalog import find_source
from tailrace.source.names import task_group

_log: Final = logging.getLogger("tailrace.source")

TAKEN_OVER_MS: Final = 3000
"""By so long before its own stop a task has taken over the splits of a task that ended."""


class TaskRecord(msgspec.Struct, frozen=True):
    """When a task began and ended, and how far it came.

    `follows` is True for a task that reads until it is stopped. `waiting` is why its reader has
    nothing to read. `caught_up` is True if the task had read everything that was there when it
    ended; `error` is why it failed.
    """

    started_ms: int
    process: str
    follows: bool
    waiting: str | None = None
    ended_ms: int | None = None
    caught_up: bool = False
    error: str | None = None


def records_table(source: str) -> str:
    """Return the table with the records of a source's tasks."""
    return f"source-tasks/{source}"


def read_records(backend: Backend, source: str) -> dict[str, TaskRecord]:
    """Return the records of a source by task."""
    decode = msgspec.json.Decoder(TaskRecord).decode
    return {
        task.decode(): decode(value)
        for task, value in scan_all(backend.table, records_table(source))
    }


class TaskRecorder:
    """Stores the record of one task. An error of the hub is logged: the run reports its own."""

    def __init__(self, backend: Backend, source: str, clock: Clock, *, follows: bool) -> None:
        self._backend = backend
        self._source = source
        self._clock = clock
        self._task = ""
        self.caught_up = False
        """True if the task found nothing to read when it looked last."""
        self.record = TaskRecord(clock.now_ms(), this_process(), follows)

    def begin(self, task: str, waiting: str | None) -> None:
        """Store that the task runs, and why its reader has nothing to read yet."""
        self._task = task
        self._store(dict.fromkeys(self._not_running()), waiting=waiting)

    def rename(self, task: str) -> None:
        """Store that the task has joined again under another name, if it has."""
        if task != self._task:
            before, self._task = self._task, task
            self._store({before: None})

    def found_data(self) -> None:
        """Store that the reader has something to read."""
        if self.record.waiting is not None:
            self._store({}, waiting=None)

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Store an error that is raised within the block, if the source is in the catalog."""
        try:
            yield
        except Exception as error:
            if self._task or self._is_known():
                self._task = self._task or secrets.token_hex(6)
                self.caught_up = False
                self.end(self._clock.now_ms(), storable(describe_error(error)))
            raise
        except BaseException:  # Ctrl-C
            if self._task:
                self.end(self._clock.now_ms())
            raise

    def end(self, stopped_ms: int, error: str | None = None) -> None:
        """Store that the task has ended, and the error. It stopped reading at `stopped_ms`."""
        done = {
            task: None
            for task, record in self._not_running().items()
            if (record.ended_ms or 0) <= stopped_ms - TAKEN_OVER_MS
        }
        self._store(done, ended_ms=self._clock.now_ms(), caught_up=self.caught_up, error=error)

    def _is_known(self) -> bool:
        try:
            return find_source(self._backend.store, self._source) is not None
        except Error:
            return False

    def _not_running(self) -> dict[str, TaskRecord]:
        """Return the records of other tasks that have ended or died."""
        try:
            group = task_group(self._source)
            alive = {each.session for each in members(self._backend, group) if each.owner}
            found = read_records(self._backend, self._source)
        except Error:
            return {}
        return {
            task: record
            for task, record in found.items()
            if task != self._task and (record.ended_ms is not None or task not in alive)
        }

    def _store(self, removed: dict[str, None], **changes: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        table: dict[TableKey, bytes | None] = {self._key(task): None for task in removed}
        table[self._key(self._task)] = msgspec.json.encode(self.record)
        try:
            self._backend.commit(Transaction(table=table))
        except Error as error:
            _log.warning("the state of source %s was not stored: %s", self._source, error)

    def _key(self, task: str) -> TableKey:
        return TableKey(records_table(self._source), task.encode())


def this_process() -> str:
    """Return the description of this process, as holds have it."""
    return f"process {os.getpid()} on {socket.gethostname()}"
