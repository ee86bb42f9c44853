"""An attempt to write to a database: each batch and its offsets are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tailrace.errors import Error
from tailrace.pipeline.offsets import Offsets, intersect_ranges
from tailrace.pipeline.transform.rows import Document, RowError, Rows
from tailrace.pipeline.writer import Attempt, RefusedRecord, SinkRefused, Staged
from tailrace.writers.sql.applied import AppliedRow, create_table, has_table
from tailrace.writers.sql.changes import ChangeStep, MovedRow, TableChanges, plan_changes
from tailrace.writers.sql.database import SqlDatabase
from tailrace.writers.sql.errors import RetryTransaction, RowsRefused
from tailrace.writers.sql.names import APPLIED, TableName
from tailrace.writers.sql.postgres_copy import copy_rows, copy_upsert
from tailrace.writers.sql.row_layout import NarrowColumn, RowLayout, convert_value
from tailrace.writers.sql.statements import Statements
from tailrace.writers.sql.tables import Tables
from tailrace.writers.sql.writer import CreateMode

COPY_ROWS_MIN: Final = 100
"""Number of rows from which on a batch is written to PostgreSQL with COPY."""

_TRIES_MAX: Final = 5
_Action = Callable[[Any], None]
_Values = tuple[Any, ...]


class SqlSession:
    """A `WriterSession` on one database connection."""

    def __init__(
        self,
        database: SqlDatabase,
        attempt: Attempt,
        name_table: Callable[[str], TableName],
        key: tuple[str, ...],
        create: CreateMode,
    ) -> None:
        self._attempt = attempt
        self._name_table = name_table
        self._key = key
        self._connection = connection = database.connect()
        try:
            self._tables = Tables(connection, create)
            self._statements = Statements(connection.dialect)
            self._copies = connection.dialect.driver == "psycopg"
            self._row = AppliedRow(connection, attempt.writer, attempt.stream)
            self._ranges = self._take_over()
        except BaseException:
            connection.close()
            raise

    def _take_over(self) -> list[Offsets]:
        failed: Error
        for _ in range(_TRIES_MAX):
            create_table(self._connection)
            try:
                with self._connection.transaction() as cursor:
                    return self._row.take_over(cursor, self._attempt)
            except (RowsRefused, RetryTransaction) as error:
                # Another attempt inserted the row at the same time, or the table was dropped.
                failed = error.final if isinstance(error, RetryTransaction) else error
        raise failed if failed.retryable else self._unusable(failed)

    def _unusable(self, error: Error) -> SinkRefused:
        return SinkRefused(
            f"the table {APPLIED} cannot be used: {error}",
            "it has the offsets of the rows in this database; without it they are written again",
        )

    def applied(self) -> Sequence[Offsets]:
        """Return which of the attempt's offsets the database already has."""
        return intersect_ranges(self._ranges, self._attempt.offsets)

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[RefusedRecord]:
        """Write rows and their offsets in one transaction."""
        try:
            self._write(rows, offsets)
        except (RowError, RowsRefused) as error:
            if offsets.end - offsets.start != 1:
                raise
            reason = error.reason if isinstance(error, RowError) else str(error)
            return (RefusedRecord(offsets.start, reason),)
        return ()

    def finish(self) -> Sequence[Staged]:
        """Sync SQLite's file; every batch is committed already."""
        if self._connection.dialect.name == "sqlite":
            with self._connection.synced_transaction() as cursor:
                self._row.touch(cursor)
        return ()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _write(self, rows: Rows, offsets: Offsets) -> None:
        steps = plan_changes(rows, self._name_table, self._key) if len(rows) else ()
        for tries in range(1, _TRIES_MAX + 1):
            try:
                actions = self._prepared_rows(steps, rows)
                with self._connection.transaction() as cursor:
                    ranges = self._row.add(cursor, self._attempt, self._ranges, offsets)
                    for action in actions:
                        action(cursor)
            except RetryTransaction as error:
                self._tables.forget()
                if not has_table(self._connection):
                    raise self._unusable(error) from None
                if tries == _TRIES_MAX:
                    raise error.final from None
            else:
                self._ranges = ranges
                return

    def _prepared_rows(self, steps: Sequence[ChangeStep], rows: Rows) -> list[_Action]:
        """Return the actions of all steps; `RowError` names the first row that is refused."""
        try:
            return self._prepared(steps)
        except RowsRefused as error:
            # Changes of a batch are merged, so the error does not know the record.
            for index, offset in enumerate(rows.offsets):
                try:
                    self._prepared(plan_changes(rows.take([index]), self._name_table, self._key))
                except RowsRefused as refused:
                    raise RowError(offset, str(refused)) from None
            raise error

    def _prepared(self, steps: Sequence[ChangeStep]) -> list[_Action]:
        """Return the actions of all steps, and widen the columns that they need wider."""
        while True:
            try:
                return [action for step in steps for action in self._actions(step)]
            except NarrowColumn as error:
                if error.table is None:
                    raise
                self._tables.widen(error.table, error)

    def _actions(self, step: ChangeStep) -> Iterable[_Action]:
        """Yield the actions of a step, and create the tables and columns that they need."""
        if isinstance(step, MovedRow):
            yield self._move(step)
            return
        if step.deletes:
            yield from self._delete(step)
        for layout, documents in self._layouts(step, step.key, list(step.upserts.values())):
            yield self._upsert(layout, documents)
        for layout, documents in self._layouts(step, (), step.inserts):
            yield self._insert(layout, documents)

    def _layouts(
        self, step: TableChanges, key: tuple[str, ...], documents: Sequence[Document]
    ) -> Iterable[tuple[RowLayout, Sequence[Document]]]:
        """Yield documents with the same fields, with their layout."""
        alike: dict[tuple[str, ...], list[Document]] = {}
        for document in documents:
            alike.setdefault(tuple(document), []).append(document)
        for fields, group in alike.items():
            yield self._tables.layout(step.table, fields, key, group), group

    def _delete(self, step: TableChanges) -> Iterable[_Action]:
        table = self._tables.find(step.table)
        if table is None:
            return
        key = self._tables.key(table, step.key)
        sql = self._statements.delete(table.quoted, [column.name for column in key])
        rows = [tuple(map(convert_value, key, identity)) for identity in step.deletes]
        yield lambda cursor: _execute(cursor, sql, rows)

    def _insert(self, layout: RowLayout, documents: Sequence[Document]) -> _Action:
        rows = layout.rows(documents)
        if self._copies and len(rows) >= COPY_ROWS_MIN:
            return lambda cursor: copy_rows(cursor, self._statements, layout, rows)
        return lambda cursor: _execute(cursor, layout.insert, rows)

    def _upsert(self, layout: RowLayout, documents: Sequence[Document]) -> _Action:
        rows = layout.rows(documents)
        upsert = layout.upsert
        if upsert is None:
            updates = [layout.update_of(row) for row in rows]
            return lambda cursor: _update_or_insert(
                cursor, layout.update, updates, layout.insert, rows
            )
        if self._copies and len(rows) >= COPY_ROWS_MIN:
            return lambda cursor: copy_upsert(cursor, self._statements, layout, rows)
        return lambda cursor: _execute(cursor, upsert, rows)

    def _move(self, step: MovedRow) -> _Action:
        fields = tuple(step.document)
        layout = self._tables.layout(step.table, fields, step.key, [step.document])
        before = tuple(map(convert_value, layout.key, step.before))
        rows = layout.rows([step.document])
        insert = layout.upsert or layout.insert
        return lambda cursor: _update_or_insert(
            cursor, layout.move, [rows[0] + before], insert, rows
        )


def _update_or_insert(
    cursor: Any, update: str, updates: Sequence[_Values], insert: str, rows: Sequence[_Values]
) -> None:
    """Update each row; insert it if there was no row to update."""
    for changed, row in zip(updates, rows, strict=True):
        cursor.execute(update, changed)
        if cursor.rowcount == 0:
            cursor.execute(insert, row)


def _execute(cursor: Any, sql: str, rows: Sequence[_Values]) -> None:
    if len(rows) == 1:
        cursor.execute(sql, rows[0])
    else:
        cursor.executemany(sql, rows)
