"""SQLite as a log, by Python's own module: one table, WAL, a transaction a batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.payloads import TIMESTAMP_MS

INSERT = "INSERT INTO log(timestamp, key, value) VALUES (?, ?, ?)"


@contextmanager
def opened(directory: Path, synchronous: str) -> Iterator[sqlite3.Connection]:
    """Open an empty log. NORMAL guarantees the same as `sync="none"`, FULL as `sync="batch"`."""
    with closing(sqlite3.connect(directory / "log.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(
            "CREATE TABLE log(offset INTEGER PRIMARY KEY, timestamp INTEGER, key BLOB, value BLOB)"
        )
        yield connection


def rows(messages: list[tuple[bytes, bytes]]) -> list[tuple[int, bytes, bytes]]:
    """Return messages as rows to insert, built before the clock starts."""
    return [(TIMESTAMP_MS, key, value) for key, value in messages]


def insert(connection: sqlite3.Connection, batch: list[tuple[int, bytes, bytes]]) -> None:
    """Append one batch in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, batch)
    connection.execute("COMMIT")
