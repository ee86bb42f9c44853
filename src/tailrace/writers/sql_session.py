"""One attempt at writing into a database: each batch is one transaction of rows and ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tailrace.errors import BackendUnavailable, Error
from tailrace.pipeline.offsets import Offsets, within
from tailrace.pipeline.rows import Document, RowError, Rows
from tailrace.pipeline.writer import Attempt, Failure, Staged
from tailrace.writers.sql import Create
from tailrace.writers.sql_applied import AppliedRow, has_table, make_table
from tailrace.writers.sql_changes import Changes, Moved, Step, plan
from tailrace.writers.sql_copy import copy_rows, copy_upsert
from tailrace.writers.sql_database import Database
from tailrace.writers.sql_errors import Refused, TryAgain
from tailrace.writers.sql_forms import Form, converted
from tailrace.writers.sql_names import APPLIED, TableName
from tailrace.writers.sql_statements import Statements
from tailrace.writers.sql_tables import Tables

COPY_ROWS_MIN: Final = 100
"""From so many rows on, PostgreSQL takes them by COPY."""

_TRIES_MAX: Final = 5
_Work = Callable[[Any], None]
_Values = tuple[Any, ...]


class SqlSession:
    """A `WriterSession` over one connection."""

    def __init__(
        self,
        database: Database,
        attempt: Attempt,
        name_table: Callable[[str], TableName],
        key: tuple[str, ...],
        create: Create,
    ) -> None:
        self._attempt = attempt
        self._name_table = name_table
        self._key = key
        self._link = link = database.connect()
        try:
            self._tables = Tables(link, create)
            self._statements = Statements(link.dialect)
            self._copies = link.dialect.driver == "psycopg"
            self._row = AppliedRow(link, attempt.writer, attempt.stream)
            self._ranges = self._take()
        except BaseException:
            link.close()
            raise

    def _take(self) -> list[Offsets]:
        for _ in range(_TRIES_MAX):
            make_table(self._link)
            try:
                with self._link.transaction() as cursor:
                    return self._row.take(cursor, self._attempt)
            except (Refused, TryAgain) as error:
                # Another attempt made the row in this moment, or somebody dropped the table.
                failed = error
        raise self._unusable(failed)

    def _unusable(self, error: Error) -> BackendUnavailable:
        return BackendUnavailable(f"the table {APPLIED} cannot be used: {error}")

    def applied(self) -> Sequence[Offsets]:
        """What the database has of the attempt's offsets."""
        return within(self._ranges, self._attempt.offsets)

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[Failure]:
        """Apply rows and store their offsets, in one transaction."""
        try:
            self._write(rows, offsets)
        except (RowError, Refused) as error:
            if offsets.end - offsets.start != 1:
                raise
            reason = error.reason if isinstance(error, RowError) else str(error)
            return (Failure(offsets.start, reason),)
        return ()

    def finish(self) -> Sequence[Staged]:
        """Each batch was committed; what SQLite has not synced yet it syncs now."""
        if self._link.dialect.name == "sqlite":
            with self._link.synced_transaction() as cursor:
                self._row.touch(cursor)
        return ()

    def close(self) -> None:
        """Give the connection back."""
        self._link.close()

    def _write(self, rows: Rows, offsets: Offsets) -> None:
        steps = plan(rows, self._name_table, self._key) if len(rows) else ()
        for tries in range(1, _TRIES_MAX + 1):
            try:
                works = [work for step in steps for work in self._works(step)]
                with self._link.transaction() as cursor:
                    ranges = self._row.add(cursor, self._attempt, self._ranges, offsets)
                    for work in works:
                        work(cursor)
            except TryAgain as error:
                self._tables.forget()
                if not has_table(self._link):
                    raise self._unusable(error) from None
                if tries == _TRIES_MAX:
                    raise error.final from None
            else:
                self._ranges = ranges
                return

    def _works(self, step: Step) -> Iterable[_Work]:
        """What a step does with a cursor. Tables and columns that it needs are there then."""
        if isinstance(step, Moved):
            yield self._move(step)
            return
        if step.gone:
            yield from self._delete(step)
        for form, documents in self._forms(step, step.key, list(step.upserts.values())):
            yield self._upsert(form, documents)
        for form, documents in self._forms(step, (), step.inserts):
            yield self._insert(form, documents)

    def _forms(
        self, step: Changes, key: tuple[str, ...], documents: Sequence[Document]
    ) -> Iterable[tuple[Form, Sequence[Document]]]:
        """Documents by the fields they have, for each with the way they are written."""
        alike: dict[tuple[str, ...], list[Document]] = {}
        for document in documents:
            alike.setdefault(tuple(document), []).append(document)
        for fields, group in alike.items():
            yield self._tables.form(step.table, fields, key, group), group

    def _delete(self, step: Changes) -> Iterable[_Work]:
        table = self._tables.find(step.table)
        if table is None:
            return
        key = self._tables.key(table, step.key)
        sql = self._statements.delete(table.quoted, [column.name for column in key])
        rows = [tuple(map(converted, key, identity)) for identity in step.gone]
        yield lambda cursor: _run(cursor, sql, rows)

    def _insert(self, form: Form, documents: Sequence[Document]) -> _Work:
        rows = form.rows(documents)
        if self._copies and len(rows) >= COPY_ROWS_MIN:
            return lambda cursor: copy_rows(cursor, self._statements, form, rows)
        return lambda cursor: _run(cursor, form.insert, rows)

    def _upsert(self, form: Form, documents: Sequence[Document]) -> _Work:
        rows = form.rows(documents)
        upsert = form.upsert
        if upsert is None:
            updates = [form.update_of(row) for row in rows]
            return lambda cursor: _update_or_insert(cursor, form.update, updates, form.insert, rows)
        if self._copies and len(rows) >= COPY_ROWS_MIN:
            return lambda cursor: copy_upsert(cursor, self._statements, form, rows)
        return lambda cursor: _run(cursor, upsert, rows)

    def _move(self, step: Moved) -> _Work:
        fields = tuple(step.document)
        form = self._tables.form(step.table, fields, step.key, [step.document])
        before = tuple(map(converted, form.key, step.before))
        rows = form.rows([step.document])
        insert = form.upsert or form.insert
        return lambda cursor: _update_or_insert(cursor, form.move, [rows[0] + before], insert, rows)


def _update_or_insert(
    cursor: Any, update: str, updates: Sequence[_Values], insert: str, rows: Sequence[_Values]
) -> None:
    """Update each row, or insert it where there was none to update."""
    for changed, row in zip(updates, rows, strict=True):
        cursor.execute(update, changed)
        if cursor.rowcount == 0:
            cursor.execute(insert, row)


def _run(cursor: Any, sql: str, rows: Sequence[_Values]) -> None:
    if len(rows) == 1:
        cursor.execute(sql, rows[0])
    else:
        cursor.executemany(sql, rows)
