"""The offsets that a database has, stored in the database: table `tailrace_applied`.

The table has one row for each writer and stream: the newest attempt, and the ranges of offsets
whose rows the database has, as JSON. The row is updated in the transaction that writes the rows,
and only by the newest attempt, so rows and ranges always agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import BigInteger, Column, MetaData, String, Table, Text, inspect

from tailrace.errors import Fenced
from tailrace.pipeline.offsets import Offsets, intersect_ranges, merge_ranges
from tailrace.pipeline.writer import Attempt, log_identity
from tailrace.writers.sql.database import SqlConnection, SqlDatabase
from tailrace.writers.sql.names import APPLIED
from tailrace.writers.sql.statements import placeholder, schema_transaction

_TABLE = Table(
    APPLIED,
    MetaData(),
    Column("writer", String(401), primary_key=True),
    Column("stream", String(200), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("ranges", Text, nullable=False),
)
_ranges_decoder = msgspec.json.Decoder(list[Offsets])


class _AppliedValues(NamedTuple):
    epoch: int
    attempt: int
    ranges: str


class AppliedRow:
    """The row of one writer and stream. Use it within transactions of its connection."""

    def __init__(self, connection: SqlConnection, writer: str, stream: str) -> None:
        self._connection = connection
        self._id = (writer, stream)
        mark = placeholder(connection.dialect)
        where = f"WHERE writer = {mark} AND stream = {mark}"
        # Waits for a commit in progress, so the value that is read is final.
        locked = "" if connection.dialect.name == "sqlite" else " FOR UPDATE"
        self._select = f"SELECT epoch, attempt, ranges FROM {APPLIED} {where}{locked}"
        self._insert = (
            f"INSERT INTO {APPLIED} (writer, stream, epoch, attempt, ranges) "
            f"VALUES ({mark}, {mark}, {mark}, {mark}, '[]')"
        )
        self._raise = (
            f"UPDATE {APPLIED} SET epoch = {mark}, attempt = {mark} {where} "
            f"AND (epoch < {mark} OR (epoch = {mark} AND attempt < {mark}))"
        )
        self._touch = f"UPDATE {APPLIED} SET epoch = epoch {where}"
        self._store = f"UPDATE {APPLIED} SET ranges = {mark} {where}"
        self._replace = f"{self._store} AND ranges = {mark} AND epoch = {mark} AND attempt = {mark}"

    def read(self, cursor: Any) -> list[Offsets]:
        """Return the stored ranges."""
        row = self._row(cursor)
        return [] if row is None else _ranges_decoder.decode(row.ranges)

    def take_over(self, cursor: Any, attempt: Attempt) -> list[Offsets]:
        """Fence all older attempts, and return the ranges; raise `Fenced` if one is newer."""
        epoch, number = attempt.epoch, attempt.number
        cursor.execute(self._raise, (epoch, number, *self._id, epoch, epoch, number))
        if cursor.rowcount == 0:
            row = self._row(cursor)
            if row is not None:
                raise self._fenced(attempt, row)
            cursor.execute(self._insert, (*self._id, epoch, number))
        return self.read(cursor)

    def add(
        self, cursor: Any, attempt: Attempt, ranges: list[Offsets], added: Offsets
    ) -> list[Offsets]:
        """Add a range, and return the stored ranges.

        `ranges` are the stored ones, as last read. Raises `Fenced` if a newer attempt has begun.
        """
        owner = (attempt.epoch, attempt.number)
        after = merge_ranges([*ranges, added])
        cursor.execute(self._replace, (_encoded(after), *self._id, _encoded(ranges), *owner))
        if cursor.rowcount == 0:
            row = self._row(cursor)
            if row is None or (row.epoch, row.attempt) != owner:
                raise self._fenced(attempt, row)
            after = merge_ranges([*_ranges_decoder.decode(row.ranges), added])
            cursor.execute(self._store, (_encoded(after), *self._id))
        return after

    def touch(self, cursor: Any) -> None:
        """Update the row without a change, so that the transaction has something to commit."""
        cursor.execute(self._touch, self._id)

    def forget(self, cursor: Any, start: int) -> None:
        """Remove `start` and later offsets."""
        row = self._row(cursor)
        if row is not None:
            kept = intersect_ranges(_ranges_decoder.decode(row.ranges), Offsets(0, start))
            cursor.execute(self._store, (_encoded(kept), *self._id))

    def _row(self, cursor: Any) -> _AppliedValues | None:
        cursor.execute(self._select, self._id)
        found = cursor.fetchone()
        return None if found is None else _AppliedValues(*found)

    def _fenced(self, attempt: Attempt, row: _AppliedValues | None) -> Fenced:
        writer, stream = self._id
        where = f"attempt {attempt.number} of writer {writer} at {stream}"
        return Fenced(where, attempt.epoch, attempt.epoch if row is None else row.epoch)


def stored_ranges(database: SqlDatabase, writer: str, stream: str) -> list[Offsets]:
    """Return the ranges of a stream that a database has."""
    with _row_of(database, writer, stream) as found:
        return [] if found is None else found[0].read(found[1])


def stored_logs(database: SqlDatabase, writer: str) -> frozenset[str]:
    """Return the commit logs whose rows a writer has written to a database."""
    if database.missing:
        return frozenset()
    with _connection_to(database) as connection:
        if connection is None:
            return frozenset()
        where = f"WHERE writer = {placeholder(connection.dialect)} AND ranges <> '[]'"
        with connection.transaction() as cursor:
            cursor.execute(f"SELECT stream FROM {APPLIED} {where}", (writer,))
            return frozenset(log_identity(stream) for (stream,) in cursor.fetchall())


def forget_ranges(database: SqlDatabase, writer: str, stream: str, start: int) -> None:
    """Remove `start` and later offsets of a stream."""
    with _row_of(database, writer, stream) as found:
        if found is not None:
            found[0].forget(found[1], start)


@contextmanager
def _row_of(
    database: SqlDatabase, writer: str, stream: str
) -> Iterator[tuple[AppliedRow, Any] | None]:
    """Yield the row and a cursor, in a transaction; None if the table does not exist."""
    with _connection_to(database) as connection:
        if connection is None:
            yield None
            return
        with connection.transaction() as cursor:
            yield AppliedRow(connection, writer, stream), cursor


@contextmanager
def _connection_to(database: SqlDatabase) -> Iterator[SqlConnection | None]:
    """Yield a connection; None if the table does not exist."""
    connection = database.connect()
    try:
        yield connection if has_table(connection) else None
    finally:
        connection.close()


def has_table(connection: SqlConnection) -> bool:
    """True if the table exists."""
    with connection.transaction():
        return inspect(connection.sqlalchemy).has_table(APPLIED)


def create_table(connection: SqlConnection) -> None:
    """Create the table if it does not exist."""
    if not has_table(connection):
        with schema_transaction(connection):
            _TABLE.create(connection.sqlalchemy, checkfirst=True)


def _encoded(ranges: Sequence[Offsets]) -> str:
    return msgspec.json.encode(ranges).decode()
