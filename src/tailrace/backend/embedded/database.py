"""`hub.db`: the one SQLite database of a hub, and the only thing that ever commits.

    meta         format, hub id, sync policy, incarnation, boot, store version, watch floor
    partitions   one row each: sealed or not, first and next offset, tail of the active segment
    segments     one row each: base offset, generation, end when closed, length of its index
    entries      the newest batch entries of each partition (older ones are in .index files)
    tables       table, key, value
    store        key, value (NULL: removed), version

The database is in WAL mode and is never checkpointed by SQLite itself: the holder of the commit
lock does it, quietly from 4 MB on. Readers in a tight loop can keep a WAL from ever starting
over; above 64 MB the holder sets a byte in a small mapped file, readers pause before their next
look, and it restarts the WAL.

No reader keeps a transaction open: each look is one, and reads all it needs.

Whatever happens inside SQLite happens inside `NO_FORK`, so that a fork meets no open transaction.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tailrace.backend.embedded.forking import NO_FORK, begin_anew_after_fork
from tailrace.errors import BackendUnavailable, HubClosed

SCHEMA = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE partitions(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL, storage INTEGER NOT NULL, number INTEGER NOT NULL,
    created INTEGER NOT NULL,
    sealed INTEGER NOT NULL DEFAULT 0,
    first_offset INTEGER NOT NULL DEFAULT 0,
    next_offset INTEGER NOT NULL DEFAULT 0,
    end_offset INTEGER NOT NULL DEFAULT 0,
    segment INTEGER,
    bytes INTEGER NOT NULL DEFAULT 0,
    records INTEGER NOT NULL DEFAULT 0,
    entries INTEGER NOT NULL DEFAULT 0,
    UNIQUE(topic, storage, number));
CREATE TABLE segments(
    partition INTEGER NOT NULL, base INTEGER NOT NULL,
    end_offset INTEGER, bytes INTEGER, records INTEGER, appended_ms INTEGER,
    index_bytes INTEGER NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY(partition, base)) WITHOUT ROWID;
CREATE TABLE entries(
    partition INTEGER NOT NULL, base INTEGER NOT NULL, records INTEGER NOT NULL,
    ordinal INTEGER NOT NULL, position INTEGER NOT NULL, bytes INTEGER NOT NULL,
    first_timestamp INTEGER NOT NULL, last_timestamp INTEGER NOT NULL,
    appended_ms INTEGER NOT NULL, crc INTEGER NOT NULL, segment INTEGER NOT NULL,
    PRIMARY KEY(partition, base)) WITHOUT ROWID;
CREATE TABLE tables(
    name TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY(name, key)) WITHOUT ROWID;
CREATE TABLE store(key TEXT PRIMARY KEY, value BLOB, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX store_by_version ON store(version);
CREATE INDEX store_removed ON store(version) WHERE value IS NULL;
"""

CHECKPOINT_BYTES = 4 * 2**20
RESTART_BYTES = 64 * 2**20
PAUSE_MAX_S = 0.1
"""How long a reader heeds the pause byte, and a restart waits for readers. A byte that is set for
longer is of a holder that was killed: whoever finds it so clears it."""

_BUSY_MS = 10_000
_PAGE_BYTES = 4096
_FRAME_BYTES = _PAGE_BYTES + 24
_TRUE = ctypes.c_int(1)

_left_alone: list[Any] = []
"""Connections that a fork met in the middle of something. To close one in the child could harm the
parent's."""


class Database:
    """The connections of one process: one that writes, under the commit lock, and a pool that
    reads."""

    def __init__(self, path: Path, pause: Path, *, synchronous: str) -> None:
        self._path = path
        self._synchronous = synchronous
        self._wal_bytes = 0
        self._due_bytes = CHECKPOINT_BYTES
        with pause.open("a+b") as file:
            if os.fstat(file.fileno()).st_size == 0:
                os.ftruncate(file.fileno(), 1)
            self._pause = mmap.mmap(file.fileno(), 1)
        self._readers: deque[apsw.Connection] = deque()
        self._writer: apsw.Connection | None = None
        self._closed = False
        begin_anew_after_fork(self)
        with NO_FORK:
            self._open_writer()

    @property
    def writer(self) -> apsw.Connection:
        """The connection that writes, for whoever holds the commit lock, and looks before that."""
        return self._writer or self._open_writer()

    def _open_writer(self) -> apsw.Connection:
        self._writer = self._connect()
        self._writer.set_wal_hook(self._note_wal)
        return self._writer

    def after_fork(self) -> None:
        """In a forked child: end the parent's connections here; the next use opens new ones."""
        if NO_FORK.torn:
            _left_alone.append((self._writer, self._readers))
            self._writer, self._readers = None, deque()
        else:
            self._close_connections()

    def _connect(self) -> apsw.Connection:
        NO_FORK.check_whole()
        if self._closed:
            raise HubClosed(f"the hub {self._path.parent} is closed", "open it again")
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(_BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(_TRUE))
        connection.pragma("journal_mode", "wal")
        connection.wal_autocheckpoint(0)
        connection.pragma("journal_size_limit", RESTART_BYTES)
        connection.pragma("synchronous", self._synchronous)
        return connection

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        wal_bytes = pages * _FRAME_BYTES
        if wal_bytes < self._wal_bytes:
            self._due_bytes = CHECKPOINT_BYTES
        self._wal_bytes = wal_bytes
        return apsw.SQLITE_OK

    @contextmanager
    def look(self) -> Iterator[apsw.Connection]:
        """A connection whose statements all see one instant. Keep it short: nothing else inside."""
        if self._pause[0]:
            self._heed_pause()
        with NO_FORK:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._connect()
            try:
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.execute("COMMIT")
            except apsw.Error as error:
                connection.close()
                raise BackendUnavailable(f"{self._path} could not be read: {error}") from error
            except BaseException:
                self._readers.append(connection)
                raise
            self._readers.append(connection)

    def rows(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of one query, as a look of its own."""
        with self.look() as connection:
            return select(connection, sql, bindings)

    def _heed_pause(self) -> None:
        deadline = time.monotonic() + PAUSE_MAX_S
        while self._pause[0]:
            if time.monotonic() > deadline:
                self._pause[0] = 0
                return
            time.sleep(0.001)

    @contextmanager
    def synced(self) -> Iterator[None]:
        """Commits inside, of the one thread that writes, are on disk when they return."""
        with NO_FORK:
            self.writer.pragma("synchronous", "full")
        try:
            yield
        finally:
            with NO_FORK:
                self.writer.pragma("synchronous", self._synchronous)

    def checkpoint_if_due(self) -> None:
        """Move the WAL into the database where it has grown. The caller holds the commit lock.

        An `apsw.Error` leaves the WAL, and all that is committed, as it was.
        """
        if self._wal_bytes < self._due_bytes:
            return
        self._due_bytes = self._wal_bytes + CHECKPOINT_BYTES
        with NO_FORK:
            if self._wal_bytes < RESTART_BYTES:
                self.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            else:
                self._restart_wal()

    def _restart_wal(self) -> None:
        self._pause[0] = 1
        self.writer.set_busy_timeout(int(PAUSE_MAX_S * 1000))
        try:
            self.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        finally:
            self._pause[0] = 0
            self.writer.set_busy_timeout(_BUSY_MS)

    def close(self) -> None:
        """Close every connection that is not in use, and open no more."""
        self._closed = True
        with NO_FORK:
            self._close_connections()
        self._pause.close()

    def _close_connections(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        while self._readers:
            self._readers.pop().close()


def select(connection: apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
    """All rows of a query."""
    rows: list[Any] = connection.execute(sql, bindings).fetchall()
    return rows
