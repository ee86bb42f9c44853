"""Reads of `hub.db`: each is one short SQLite transaction, on a connection of a pool.

No reader keeps a transaction open. All calls of SQLite are inside `NO_FORK`, so that no transaction
is open during a fork.

The *pause byte*, in a small mapped file, asks readers of all processes to pause before their next
read, so that the holder of the commit lock can restart the WAL.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tailrace.backend.embedded.identity import HubIdentity
from tailrace.backend.forking import NO_FORK, reset_after_fork
from tailrace.errors import BackendUnavailable, HubClosed

PAUSE_MAX_S = 0.1
"""How long a reader obeys the pause byte, and a restart waits for readers. A byte that is set for
longer belongs to a holder that was killed: the process that finds it clears it."""

_HUB_ID = "SELECT value FROM meta WHERE name = 'hub_id'"

_unclosed: list[Any] = []
"""Connections that were in use during a fork. Closing one in the child could damage the
parent's."""


class Snapshots:
    """The connections of one process that read a database. Subclasses open them."""

    def __init__(self, path: Path, pause: mmap.mmap, identity: HubIdentity | None) -> None:
        self._path = path
        self._pause = pause
        self._identity = identity
        self._readers: deque[apsw.Connection] = deque()
        self._closed = False
        reset_after_fork(self)

    def _connect(self) -> apsw.Connection:
        """Return a new connection, inside `NO_FORK`."""
        NO_FORK.check_whole()
        if self._closed:
            raise HubClosed(f"the hub {self._path.parent} is closed", "open it again")
        connection = self._open_connection()
        if self._identity is not None:
            try:
                self._identity.check()  # After the path was used: so it led to the hub.
                self._identity.check_id(select(connection, _HUB_ID)[0][0])
            except BaseException:
                connection.close()
                raise
        return connection

    def _open_connection(self) -> apsw.Connection:
        raise NotImplementedError

    @contextmanager
    def snapshot(self) -> Iterator[apsw.Connection]:
        """Provide a connection whose statements all see one instant. Keep the block short."""
        if self._pause[0]:
            self._wait_for_pause()
        self.check_identity()
        with NO_FORK:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._connect_reader()
            try:
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.execute("COMMIT")
            except apsw.Error as error:
                connection.close()
                raise self._unreadable(error) from error
            except BaseException:
                self._readers.append(connection)
                raise
            self._readers.append(connection)

    def _connect_reader(self) -> apsw.Connection:
        try:
            return self._connect()
        except apsw.Error as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: apsw.Error) -> BackendUnavailable:
        return BackendUnavailable(f"{self._path} cannot be read: {error}")

    def check_identity(self) -> None:
        """Raise `HubReplaced` if the hub was removed or replaced."""
        if self._identity is not None:
            self._identity.check()

    def rows(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Return all rows of one query, as a read of its own."""
        with self.snapshot() as connection:
            return select(connection, sql, bindings)

    def _wait_for_pause(self) -> None:
        deadline = time.monotonic() + PAUSE_MAX_S
        while self._pause[0]:
            if time.monotonic() > deadline:
                self._end_pause()
                return
            time.sleep(0.001)

    def _end_pause(self) -> None:
        """End a pause that lasts too long."""
        raise NotImplementedError

    def after_fork(self) -> None:
        """In a forked child: close the parent's connections here; the next use opens new ones."""
        if NO_FORK.torn:
            _unclosed.append(self._readers)
            self._readers = deque()
        else:
            self._close_connections()

    def close(self) -> None:
        """Close every connection that is not in use. No connection can be opened after that."""
        self._closed = True
        with NO_FORK:
            self._close_connections()
        self._pause.close()

    def _close_connections(self) -> None:
        while self._readers:
            self._readers.pop().close()


def select(connection: apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
    """Return all rows of a query."""
    rows: list[Any] = connection.execute(sql, bindings).fetchall()
    return rows
