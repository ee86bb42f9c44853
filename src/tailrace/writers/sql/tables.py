"""Inspect the tables of a database; create tables and columns from the data, and widen columns.

Tables and columns are created in their own transactions, before the rows that need them: some
databases cannot roll back the creation of a table, and a table should not stay locked for a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, MetaData, PrimaryKeyConstraint, Table, inspect
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.schema import CreateColumn, CreateSchema, CreateTable

from tailrace.pipeline.transform.rows import Document
from tailrace.writers.sql.database import SqlConnection
from tailrace.writers.sql.errors import RowsRefused
from tailrace.writers.sql.names import TableName, display_name
from tailrace.writers.sql.row_layout import (
    NarrowColumn,
    RowLayout,
    SqlColumn,
    SqlTable,
    make_layout,
)
from tailrace.writers.sql.statements import Statements, schema_transaction
from tailrace.writers.sql.values import (
    ColumnKind,
    column_check,
    column_kind,
    column_type,
    conversion,
)
from tailrace.writers.sql.writer import CreateMode


class Tables:
    """The tables that a session writes to, as it last inspected them."""

    def __init__(self, connection: SqlConnection, create: CreateMode) -> None:
        self._connection = connection
        self._naming = connection.database.naming
        self._create = create
        self._statements = Statements(connection.dialect)
        self._known: dict[TableName, SqlTable] = {}
        self._layouts: dict[tuple[TableName, tuple[str, ...], tuple[str, ...]], RowLayout] = {}

    def forget(self) -> None:
        """Inspect every table again before its next use."""
        self._known.clear()
        self._layouts.clear()

    def find(self, name: TableName) -> SqlTable | None:
        """Return a table; None if it does not exist and may be created.

        Raises `RowsRefused` if it does not exist and must not be created.
        """
        table = self._known.get(name)
        if table is None:
            with self._connection.transaction():
                table = self._inspect(name)
        if table is None and self._create is CreateMode.NOTHING:
            raise RowsRefused(
                f"{self._connection.database.url} has no table {display_name(str(name))}",
                'create the table, or set create = "tables"',
            )
        return table

    def layout(
        self,
        name: TableName,
        fields: tuple[str, ...],
        key: tuple[str, ...],
        documents: Sequence[Document],
    ) -> RowLayout:
        """Return the layout of documents that all have these fields.

        Creates the missing table and columns. Raises `RowsRefused` if that is not allowed.
        """
        known = self._layouts.get((name, fields, key))
        if known is not None:
            return known
        table = self.find(name)
        needed = self._missing(table, fields, documents)
        if table is None or needed:
            table = self._create_missing(name, fields, key, documents)
        present = tuple(each for each in fields if self._fold(each) in table.columns)
        layout = self._make_layout(table, present, key)
        if len(present) == len(fields):
            self._layouts[name, fields, key] = layout
        return layout

    def key(self, table: SqlTable, key: Sequence[str]) -> tuple[SqlColumn, ...]:
        """Return the key columns; raise `RowsRefused` if the table lacks one."""
        missing = [each for each in key if self._fold(each) not in table.columns]
        if missing:
            raise RowsRefused(
                f"table {display_name(str(table.name))} has no column {display_name(missing[0])}, "
                "which is part of the row's identity"
            )
        return tuple(table.columns[self._fold(each)] for each in key)

    def widen(self, name: TableName, narrow: NarrowColumn) -> None:
        """Change a column of integers to numbers.

        Raises `RowsRefused` if that is not allowed, or if an integer in it would lose digits.
        """
        if self._create is not CreateMode.COLUMNS:
            raise RowsRefused(str(narrow), 'or set create = "columns"')
        with schema_transaction(self._connection):
            # Another session may have widened it since.
            table = self._inspect(name)
            column = None if table is None else table.columns.get(self._fold(narrow.column))
            if table is not None and column is not None and column.widens:
                if any(column.name in each for each in table.unique):
                    raise RowsRefused(str(narrow))
                cursor = self._connection.cursor
                cursor.execute(self._statements.find_large(table.quoted, column.name), ())
                if cursor.fetchone() is not None:
                    raise RowsRefused(
                        f"{narrow}; it has integers beyond 2^53, which would lose digits as numbers"
                    )
                for statement in self._statements.widen(table.quoted, column.name):
                    cursor.execute(statement, ())
        self.forget()

    def _fold(self, name: str) -> str:
        return self._naming.fold(name)

    def _make_layout(
        self, table: SqlTable, fields: tuple[str, ...], key: tuple[str, ...]
    ) -> RowLayout:
        folded = [self._fold(each) for each in fields]
        if not folded:
            raise self._empty(table.name)
        if len(set(folded)) < len(folded):
            twice = next(each for each in folded if folded.count(each) > 1)
            raise RowsRefused(f"several fields have values for column {display_name(twice)}")
        columns = tuple(table.columns[each] for each in folded)
        return make_layout(self._statements, table, fields, columns, self.key(table, key))

    def _empty(self, name: TableName) -> RowsRefused:
        return RowsRefused(f"it has no value for any column of table {display_name(str(name))}")

    def _missing(
        self, table: SqlTable | None, fields: tuple[str, ...], documents: Sequence[Document]
    ) -> dict[str, ColumnKind]:
        """Return the fields that have a value but no column."""
        columns = {} if table is None else table.columns
        needed = {}
        for each in fields:
            if self._fold(each) not in columns:
                try:
                    kind = column_kind([document[each] for document in documents])
                except ValueError as error:
                    raise RowsRefused(f"column {display_name(each)}: {error}") from None
                if kind is not None:
                    needed[each] = kind
        return needed

    def _create_missing(
        self,
        name: TableName,
        fields: tuple[str, ...],
        key: tuple[str, ...],
        documents: Sequence[Document],
    ) -> SqlTable:
        with schema_transaction(self._connection):
            # Another session may have created it since.
            table = self._inspect(name)
            needed = self._missing(table, fields, documents)
            if table is None and not needed:
                raise self._empty(name)
            if table is None:
                self._create_table(name, needed, key)
            elif needed:
                self._add_columns(table, needed)
            table = self._inspect(name)
        self._layouts.clear()
        assert table is not None
        return table

    def _create_table(
        self, name: TableName, kinds: dict[str, ColumnKind], key: tuple[str, ...]
    ) -> None:
        self._check(kinds)
        nested = [each for each in key if kinds[each] is ColumnKind.NESTED]
        if nested:
            raise RowsRefused(
                f"column {display_name(nested[0])} is part of the key, but its value is nested"
            )
        columns = [self._column(each, kind, key=each in key) for each, kind in kinds.items()]
        parts = [PrimaryKeyConstraint(*key)] if key else []
        connection = self._connection.sqlalchemy
        if name.schema is not None and not inspect(connection).has_schema(name.schema):
            connection.execute(CreateSchema(name.schema, if_not_exists=True))
        table = Table(name.name, MetaData(), *columns, *parts, schema=name.schema, quote=True)
        connection.execute(CreateTable(table))

    def _add_columns(self, table: SqlTable, kinds: dict[str, ColumnKind]) -> None:
        if self._create is not CreateMode.COLUMNS:
            names = ", ".join(map(display_name, kinds))
            raise RowsRefused(
                f"table {display_name(str(table.name))} has no column {names}",
                'add the column, drop the field, or set create = "columns"',
            )
        self._check(kinds)
        for each, kind in kinds.items():
            column = self._column(each, kind, key=False)
            definition = CreateColumn(column).compile(dialect=self._connection.dialect)
            self._connection.cursor.execute(
                f"ALTER TABLE {table.quoted} ADD COLUMN {definition}", ()
            )

    def _check(self, names: Mapping[str, ColumnKind]) -> None:
        for each in names:
            try:
                self._naming.check(each, "column")
            except ValueError as error:
                raise RowsRefused(str(error)) from None

    def _column(self, name: str, kind: ColumnKind, *, key: bool) -> Column[Any]:
        dialect = self._connection.dialect.name
        type_ = column_type(kind, key=key, dialect=dialect)
        check = column_check(name, kind, dialect=dialect)
        checks = () if check is None else (check,)
        return Column(name, type_, *checks, nullable=not key, quote=True, autoincrement=False)

    def _inspect(self, name: TableName) -> SqlTable | None:
        inspector = inspect(self._connection.sqlalchemy)
        try:
            found = inspector.get_columns(name.name, name.schema)
            primary = inspector.get_pk_constraint(name.name, name.schema)
            keys: list[list[Any]] = [primary["constrained_columns"]]
            keys += [
                each["column_names"]
                for each in inspector.get_unique_constraints(name.name, name.schema)
            ]
            indexes: list[Any] = inspector.get_indexes(name.name, name.schema)
            keys += [
                each["column_names"] for each in indexes if each["unique"] and not _is_partial(each)
            ]
            constraints: list[Any] = [
                *inspector.get_check_constraints(name.name, name.schema),
                *inspector.get_foreign_keys(name.name, name.schema),
            ]
        except NoSuchTableError:
            return None
        # SQLite replaces a column to widen it, and cannot replace one that has an index.
        is_sqlite = self._connection.dialect.name == "sqlite"
        fixed = {each for index in indexes if is_sqlite for each in index["column_names"]}
        columns = {
            self._fold(each["name"]): SqlColumn(
                each["name"],
                not each["nullable"] and each["default"] is None and not _is_generated(each),
                conversion(self._connection.dialect.name, each["type"]),
                self._may_widen(each, constrained=bool(constraints) or each["name"] in fixed),
            )
            for each in found
        }
        unique = frozenset(frozenset(each) for each in keys if each and all(each))
        table = SqlTable(name, self._statements.table(name), columns, unique)
        self._known[name] = table
        return table

    def _may_widen(self, column: Mapping[str, Any], *, constrained: bool) -> bool:
        """True if a column of integers can be changed to numbers, and stays the same otherwise."""
        if not isinstance(column["type"], BigInteger) or _is_generated(column):
            return False
        if self._connection.dialect.name == "postgresql":
            return True
        # In other databases, the changed column would lose its constraints and its default.
        return bool(column["nullable"]) and column["default"] is None and not constrained


def _is_partial(index: Mapping[str, Any]) -> bool:
    options = index.get("dialect_options", {})
    return any(name.endswith("_where") for name in options)


def _is_generated(column: Mapping[str, Any]) -> bool:
    """True if the database generates the values of the column."""
    return bool(
        column.get("computed") or column.get("identity") or column.get("autoincrement") is True
    )
