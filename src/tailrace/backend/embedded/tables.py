"""Tables and the store, as rows of `hub.db`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from tailrace.backend.contract import FENCES, Change, Entry, StorageTopic, Transaction
from tailrace.backend.embedded.committer import Work
from tailrace.backend.embedded.opening import INCARNATION_OFFSETS
from tailrace.backend.embedded.snapshots import Snapshots, select
from tailrace.errors import Conflict, Fenced, UnknownTopic, WatchExpired

REMOVALS_KEPT = 4096
"""The number of removed entries that are stored for `watch`."""

# A topic that a crash removed and that is created again must not reuse the offsets of the lost one.
_CREATE = (
    "INSERT INTO partitions(topic, storage, number, created, next_offset)"
    " SELECT ?, ?, ?, ?, CASE sync.value WHEN 'none'"
    f" THEN (incarnation.value - 1) * {INCARNATION_OFFSETS} ELSE 0 END"
    " FROM meta AS sync, meta AS incarnation"
    " WHERE sync.name = 'sync' AND incarnation.name = 'incarnation'"
)
_VERSION = "UPDATE meta SET value = value + 1 WHERE name = 'version' RETURNING value"
_ABOVE_ALL = "\U0010ffff"


class EmbeddedTable:
    """See `tailrace.backend.contract.Table`."""

    def __init__(self, database: Callable[[], Snapshots]) -> None:
        self._database = database

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the newest committed value, or None."""
        rows = self._database().rows(
            "SELECT value FROM tables WHERE name = ? AND key = ?", (table, key)
        )
        return rows[0][0] if rows else None

    def scan(
        self, table: str, start: bytes = b"", end: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values from `start` up to, not including, `end`, at most `limit`."""
        bound, bindings = ("", ()) if end is None else (" AND key < ?", (end,))
        return self._database().rows(
            "SELECT key, value FROM tables WHERE name = ? AND key >= ?"
            f"{bound} ORDER BY key LIMIT ?",
            (table, start, *bindings, limit),
        )


class EmbeddedStore:
    """See `tailrace.backend.contract.Store`."""

    def __init__(
        self, database: Callable[[], Snapshots], submit: Callable[[Work], Any], directory: Path
    ) -> None:
        self._database = database
        self._submit = submit
        self._directory = directory

    def get(self, key: str) -> Entry | None:
        """Return the entry, or None if it does not exist."""
        rows = self._database().rows(
            "SELECT key, value, version FROM store WHERE key = ? AND value IS NOT NULL", (key,)
        )
        return Entry(*rows[0]) if rows else None

    def scan(self, prefix: str) -> list[Entry]:
        """Return all entries whose key begins with `prefix`, in key order."""
        rows = self._database().rows(
            "SELECT key, value, version FROM store"
            " WHERE key >= ? AND key < ? AND value IS NOT NULL ORDER BY key",
            (prefix, prefix + _ABOVE_ALL),
        )
        return [Entry(*row) for row in rows]

    def commit(self, change: Change) -> int:
        """Commit the whole change and return the version of every written entry, or raise
        `Conflict`."""
        version: int = self._submit(
            Work(
                check=lambda connection: _expect(connection, change),
                write=lambda connection: self._write(connection, change),
            )
        )
        return version

    def watch(self, prefix: str, after: int) -> list[Entry]:
        """Return the entries written or removed after version `after`, oldest first."""
        with self._database().snapshot() as connection:
            ((floor,),) = select(connection, "SELECT value FROM meta WHERE name = 'floor'")
            if after < floor:
                raise WatchExpired(after, floor)
            # By version, because few entries are new. (SQLite would scan all keys of the prefix.)
            rows = select(
                connection,
                "SELECT key, value, version FROM store"
                " WHERE version > ? AND +key >= ? AND +key < ? ORDER BY version, key",
                (after, prefix, prefix + _ABOVE_ALL),
            )
        return [Entry(*row) for row in rows]

    def _write(self, connection: apsw.Connection, change: Change) -> int:
        ((version,),) = select(connection, _VERSION)
        for key, value in change.writes.items():
            _write_entry(connection, key, value, version)
        if None in change.writes.values():
            _forget_removals(connection)
        for storage in change.create:
            connection.executemany(
                _CREATE, ((*storage[:2], number, version) for number in range(storage.partitions))
            )
        for storage in change.seal:
            self._each(connection, "UPDATE partitions SET sealed = 1", storage)
        for storage in change.delete:
            self._delete(connection, storage)
        return int(version)

    def _each(self, connection: apsw.Connection, statement: str, storage: StorageTopic) -> None:
        connection.execute(
            f"{statement} WHERE topic = ? AND storage = ?", (storage.topic, storage.storage)
        )
        if connection.changes() == 0:
            raise UnknownTopic(f"{storage.topic}/{storage.storage}", str(self._directory))

    def _delete(self, connection: apsw.Connection, storage: StorageTopic) -> None:
        for table in ("segments", "entries"):
            connection.execute(
                f"DELETE FROM {table} WHERE partition IN"
                " (SELECT id FROM partitions WHERE topic = ? AND storage = ?)",
                (storage.topic, storage.storage),
            )
        self._each(connection, "DELETE FROM partitions", storage)


def check_transaction(connection: apsw.Connection, transaction: Transaction) -> None:
    """Raise the error that forbids a transaction: a stale fence, or a key that must not exist."""
    fence = transaction.fence
    if fence is not None:
        version = _version(connection, FENCES + fence.name)
        if version != fence.epoch or version == 0:
            raise Fenced(fence.name, fence.epoch, version)
    for key in transaction.absent:
        row = connection.execute(
            "SELECT value FROM tables WHERE name = ? AND key = ?", key
        ).fetchone()
        if row is not None:
            raise Conflict(f"{key.table} {key.key!r}", 0, 1, row[0])


def write_tables(connection: apsw.Connection, transaction: Transaction) -> None:
    """Write the rows of a transaction's table writes."""
    for (table, key), value in transaction.table.items():
        if value is None:
            connection.execute("DELETE FROM tables WHERE name = ? AND key = ?", (table, key))
        else:
            connection.execute(
                "INSERT INTO tables VALUES (?, ?, ?)"
                " ON CONFLICT(name, key) DO UPDATE SET value = excluded.value",
                (table, key, value),
            )


def _expect(connection: apsw.Connection, change: Change) -> None:
    for key, expected in change.expect.items():
        version = _version(connection, key)
        if version != expected:
            row = connection.execute("SELECT value FROM store WHERE key = ?", (key,)).fetchone()
            raise Conflict(key, expected, version, row[0] if row else None)
    for storage in change.create:
        row = connection.execute(
            "SELECT 1 FROM partitions WHERE topic = ? AND storage = ?", storage[:2]
        ).fetchone()
        if row is not None:
            raise Conflict(f"storage {storage.storage} of topic {storage.topic!r}", 0, 1)


def _version(connection: apsw.Connection, key: str) -> int:
    row = connection.execute(
        "SELECT version FROM store WHERE key = ? AND value IS NOT NULL", (key,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def _write_entry(connection: apsw.Connection, key: str, value: bytes | None, version: int) -> None:
    if value is not None:
        connection.execute(
            "INSERT INTO store VALUES (?, ?, ?) ON CONFLICT(key)"
            " DO UPDATE SET value = excluded.value, version = excluded.version",
            (key, value, version),
        )
        return
    connection.execute(
        "UPDATE store SET value = NULL, version = ? WHERE key = ? AND value IS NOT NULL",
        (version, key),
    )


def _forget_removals(connection: apsw.Connection) -> None:
    row = connection.execute(
        "SELECT version FROM store WHERE value IS NULL ORDER BY version DESC LIMIT 1 OFFSET ?",
        (REMOVALS_KEPT,),
    ).fetchone()
    if row is not None:
        connection.execute("DELETE FROM store WHERE value IS NULL AND version <= ?", row)
        connection.execute("UPDATE meta SET value = ? WHERE name = 'floor'", row)
