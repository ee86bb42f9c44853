"""What was applied to a database, kept in the database: table `tailrace_applied`.

There is one row for each writer and stream: the newest attempt, and the ranges of offsets whose
rows the database has, as JSON. The row changes in the transaction that writes the rows, and only
while the attempt that writes is the newest; so rows and ranges never disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import BigInteger, Column, MetaData, String, Table, Text, inspect

from tailrace.errors import Fenced
from tailrace.pipeline.offsets import Offsets, united, within
from tailrace.pipeline.writer import Attempt, log_of
from tailrace.writers.sql_database import Database, Link
from tailrace.writers.sql_names import APPLIED
from tailrace.writers.sql_statements import making_tables, placeholder

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


class _Row(NamedTuple):
    epoch: int
    attempt: int
    ranges: str


class AppliedRow:
    """The row of one writer and stream. To be used within transactions of its link."""

    def __init__(self, link: Link, writer: str, stream: str) -> None:
        self._link = link
        self._id = (writer, stream)
        mark = placeholder(link.dialect)
        where = f"WHERE writer = {mark} AND stream = {mark}"
        # Waits for a commit that is under way, so that what is read is final.
        locked = "" if link.dialect.name == "sqlite" else " FOR UPDATE"
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
        """The ranges that are stored."""
        row = self._row(cursor)
        return [] if row is None else _ranges_decoder.decode(row.ranges)

    def take(self, cursor: Any, attempt: Attempt) -> list[Offsets]:
        """Shut out all older attempts, and give the ranges; `Fenced` if there is a newer one."""
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
        """Store that the database also has these offsets, and give the ranges there are then.

        `ranges` is what was stored when last seen. `Fenced` if there is a newer attempt.
        """
        owner = (attempt.epoch, attempt.number)
        after = united([*ranges, added])
        cursor.execute(self._replace, (_encoded(after), *self._id, _encoded(ranges), *owner))
        if cursor.rowcount == 0:
            row = self._row(cursor)
            if row is None or (row.epoch, row.attempt) != owner:
                raise self._fenced(attempt, row)
            after = united([*_ranges_decoder.decode(row.ranges), added])
            cursor.execute(self._store, (_encoded(after), *self._id))
        return after

    def touch(self, cursor: Any) -> None:
        """Write the row as it is, for the sake of the commit."""
        cursor.execute(self._touch, self._id)

    def forget(self, cursor: Any, start: int) -> None:
        """Store that the database has nothing from `start` on."""
        row = self._row(cursor)
        if row is not None:
            kept = within(_ranges_decoder.decode(row.ranges), Offsets(0, start))
            cursor.execute(self._store, (_encoded(kept), *self._id))

    def _row(self, cursor: Any) -> _Row | None:
        cursor.execute(self._select, self._id)
        found = cursor.fetchone()
        return None if found is None else _Row(*found)

    def _fenced(self, attempt: Attempt, row: _Row | None) -> Fenced:
        writer, stream = self._id
        where = f"attempt {attempt.number} of writer {writer} at {stream}"
        return Fenced(where, attempt.epoch, attempt.epoch if row is None else row.epoch)


def stored(database: Database, writer: str, stream: str) -> list[Offsets]:
    """What a database says it has of a stream."""
    with _row_of(database, writer, stream) as found:
        return [] if found is None else found[0].read(found[1])


def stored_logs(database: Database, writer: str) -> frozenset[str]:
    """The commit logs of which a database says it has something by a writer."""
    with _link_to(database) as link:
        if link is None:
            return frozenset()
        where = f"WHERE writer = {placeholder(link.dialect)} AND ranges <> '[]'"
        with link.transaction() as cursor:
            cursor.execute(f"SELECT stream FROM {APPLIED} {where}", (writer,))
            return frozenset(log_of(stream) for (stream,) in cursor.fetchall())


def forget(database: Database, writer: str, stream: str, start: int) -> None:
    """Let a database say no longer that it has `start` and beyond of a stream."""
    with _row_of(database, writer, stream) as found:
        if found is not None:
            found[0].forget(found[1], start)


@contextmanager
def _row_of(
    database: Database, writer: str, stream: str
) -> Iterator[tuple[AppliedRow, Any] | None]:
    """The row and a cursor for it, in a transaction; None where nothing was ever applied."""
    with _link_to(database) as link:
        if link is None:
            yield None
            return
        with link.transaction() as cursor:
            yield AppliedRow(link, writer, stream), cursor


@contextmanager
def _link_to(database: Database) -> Iterator[Link | None]:
    """A connection; None where nothing was ever applied."""
    if database.missing:
        yield None
        return
    link = database.connect()
    try:
        yield link if has_table(link) else None
    finally:
        link.close()


def has_table(link: Link) -> bool:
    """Whether the table is there."""
    with link.transaction():
        return inspect(link.connection).has_table(APPLIED)


def make_table(link: Link) -> None:
    """Make the table, unless it is there."""
    if not has_table(link):
        with making_tables(link):
            _TABLE.create(link.connection, checkfirst=True)


def _encoded(ranges: Sequence[Offsets]) -> str:
    return msgspec.json.encode(ranges).decode()
