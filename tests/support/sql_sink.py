"""An `sql` writer and its database; the tables are read without the writer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import sqlalchemy as sa

from tailrace.hub.hub import Hub
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Op
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import Rows
from tailrace.pipeline.writer import Attempt, RefusedRecord, WriterSession
from tailrace.writers.sql.writer import SqlWriter

WRITER, STREAM = "lake/crm", "5f2a/0.0"
_numbers = itertools.count(1)


class Change(NamedTuple):
    """A record of a commit log."""

    document: Mapping[str, Any]
    op: Op = Op.INSERT
    identity: Mapping[str, Any] | None = None
    namespace: str = "orders"


def insert(document: Mapping[str, Any], **others: Any) -> Change:
    return Change(document, Op.INSERT, **others)


def update(document: Mapping[str, Any], **others: Any) -> Change:
    return Change(document, Op.UPDATE, **others)


def delete(document: Mapping[str, Any], **others: Any) -> Change:
    return Change(document, Op.DELETE, **others)


def rows_of(changes: Sequence[Change], start: int) -> Rows:
    return Rows(
        from_records(
            [
                Record(
                    start + number,
                    0,
                    0,
                    change.op,
                    change.namespace.encode(),
                    None
                    if change.identity is None
                    else {"identity": msgspec.json.encode(change.identity)},
                    msgspec.json.encode(change.document),
                )
                for number, change in enumerate(changes)
            ]
        )
    )


def attempt(number: int = 1, epoch: int = 1, stream: str = STREAM, end: int = 10**9) -> Attempt:
    return Attempt(WRITER, stream, "plan", Offsets(0, end), epoch, number, "fence", _no_hub)


def _no_hub() -> Hub:
    raise AssertionError("the sql writer needs no hub")


class Sink:
    """One writer, its newest session, and the database behind it."""

    def __init__(self, url: str, **options: Any) -> None:
        self.writer = SqlWriter(url, **options)
        self.writer.create_sink()
        self.engine = sa.create_engine(
            url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool
        )
        self._sessions: list[WriterSession] = []
        self.offset = 0

    def session(self) -> WriterSession:
        """Begin a new attempt."""
        session = self.writer.open(attempt(next(_numbers)))
        self._sessions.append(session)
        return session

    def write(self, *changes: Change) -> Sequence[RefusedRecord]:
        """Write changes as one batch, at the next offsets."""
        session = self._sessions[-1] if self._sessions else self.session()
        offsets = Offsets(self.offset, self.offset + len(changes))
        failures = session.write(rows_of(changes, self.offset), offsets)
        self.offset = offsets.end
        return failures

    def applied(self) -> list[tuple[int, int]]:
        """Return the applied offsets of the stream."""
        held = self.writer.applied(WRITER, STREAM, cast(Hub, None))
        return [(start, end) for start, end in held]

    def execute(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(sql)

    def one(self, sql: str) -> tuple[Any, ...]:
        """Return the only row of a query."""
        with self.engine.begin() as connection:
            return tuple(connection.exec_driver_sql(sql).one())

    def rows(self, table: str = "orders", order: str = "id") -> list[dict[str, Any]]:
        """Return the rows of a table."""
        named = sa.table(sa.quoted_name(table, True))
        ordered: sa.ColumnClause[Any] = sa.column(sa.quoted_name(order, True))
        query = sa.select(sa.text("*")).select_from(named).order_by(ordered)
        with self.engine.begin() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def tables(self) -> set[str]:
        with self.engine.begin() as connection:
            return set(sa.inspect(connection).get_table_names())

    def column_type(self, column: str, table: str = "orders") -> str:
        """Return the type of a column, as the database names it."""
        with self.engine.begin() as connection:
            found = {
                each["name"]: each["type"] for each in sa.inspect(connection).get_columns(table)
            }
        return str(found[column])

    def close(self) -> None:
        for session in self._sessions:
            session.close()
