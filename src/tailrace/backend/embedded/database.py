"""`hub.db`: the one SQLite database of a hub, and the only file that commits.

    meta         format, hub id, sync policy, incarnation, boot, store version, watch floor
    partitions   one row each: sealed or not, first and next offset, tail of the active segment
    segments     one row each: base offset, generation, end when closed, length of its index
    entries      the newest batch entries of each partition (older ones are in .index files)
    tables       table, key, value
    store        key, value (NULL: removed), version

The database is in WAL mode and SQLite never checkpoints it by itself: the holder of the commit lock
does, passively from 4 MB on. Readers in a tight loop can keep a WAL from ever restarting. Above
64 MB the holder sets a byte in a small mapped file, readers pause before their next read, and the
holder restarts the WAL.

`snapshots` has the reads.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from tailrace.backend.embedded.identity import HubIdentity
from tailrace.backend.embedded.snapshots import PAUSE_MAX_S, Snapshots
from tailrace.backend.forking import NO_FORK
from tailrace.log.sharing import open_or_create

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

_BUSY_MS = 10_000
_PAGE_BYTES = 4096
_FRAME_BYTES = _PAGE_BYTES + 24
_TRUE = ctypes.c_int(1)


class Database(Snapshots):
    """The connections of one process: one for writing, under the commit lock, and a pool for
    reading."""

    def __init__(
        self,
        path: Path,
        pause: Path,
        *,
        synchronous: str,
        identity: HubIdentity | None = None,
    ) -> None:
        """Open the database, which exists. Connections and reads check the `identity`."""
        self._synchronous = synchronous
        self._wal_bytes = 0
        self._due_bytes = CHECKPOINT_BYTES
        self._writer: apsw.Connection | None = None
        super().__init__(path, _map_pause(pause), identity)
        with NO_FORK:
            self._open_writer()

    @property
    def writer(self) -> apsw.Connection:
        """The connection for writing. Only the thread that leads the group commit uses it: for
        checks before it has the commit lock, and for writes under the lock."""
        return self._writer or self._open_writer()

    def _open_writer(self) -> apsw.Connection:
        self._writer = self._connect()
        self._writer.set_wal_hook(self._record_wal)
        return self._writer

    def after_fork(self) -> None:
        """In a forked child: close the parent's connections here; the next use opens new ones."""
        if NO_FORK.torn and self._writer is not None:
            self._readers.append(self._writer)
            self._writer = None
        super().after_fork()

    def _open_connection(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(_BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(_TRUE))
        connection.pragma("journal_mode", "wal")
        connection.wal_autocheckpoint(0)
        connection.pragma("journal_size_limit", RESTART_BYTES)
        connection.pragma("synchronous", self._synchronous)
        return connection

    def _end_pause(self) -> None:
        self._pause[0] = 0

    def _record_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        wal_bytes = pages * _FRAME_BYTES
        if wal_bytes < self._wal_bytes:
            self._due_bytes = CHECKPOINT_BYTES
        self._wal_bytes = wal_bytes
        return apsw.SQLITE_OK

    @contextmanager
    def synced(self) -> Iterator[None]:
        """Provide a block whose commits, by the one writing thread, are on disk when they
        return."""
        with NO_FORK:
            self.writer.pragma("synchronous", "full")
        try:
            yield
        finally:
            with NO_FORK:
                self.writer.pragma("synchronous", self._synchronous)

    def checkpoint_if_due(self) -> None:
        """Move the WAL into the database if it has grown. The caller holds the commit lock.

        An `apsw.Error` leaves the WAL, and all committed data, as it was.
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

    def _close_connections(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        super()._close_connections()


def _map_pause(file: Path) -> mmap.mmap:
    descriptor = open_or_create(file)
    try:
        if os.fstat(descriptor).st_size == 0:
            os.ftruncate(descriptor, 1)
        return mmap.mmap(descriptor, 1)
    finally:
        os.close(descriptor)
