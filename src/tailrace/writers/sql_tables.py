"""The tables of a database: looked at once, made and widened from the data where that is allowed.

Tables and columns are made in transactions of their own, before the rows that need them: not every
database can undo the making of a table, and none should keep it locked for a whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, Table, inspect
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.schema import CreateColumn, CreateSchema, CreateTable

from tailrace.pipeline.rows import Document
from tailrace.writers.sql import Create
from tailrace.writers.sql_database import Link
from tailrace.writers.sql_errors import Refused
from tailrace.writers.sql_forms import Form, SqlColumn, SqlTable, make_form
from tailrace.writers.sql_names import TableName, shown
from tailrace.writers.sql_statements import Statements, making_tables
from tailrace.writers.sql_values import Kind, conversion, kind_of, type_for


class Tables:
    """The tables that a session writes to, as it knows them."""

    def __init__(self, link: Link, create: Create) -> None:
        self._link = link
        self._naming = link.database.naming
        self._create = create
        self._statements = Statements(link.dialect)
        self._known: dict[TableName, SqlTable] = {}
        self._forms: dict[tuple[TableName, tuple[str, ...], tuple[str, ...]], Form] = {}

    def forget(self) -> None:
        """Look at every table again before using it."""
        self._known.clear()
        self._forms.clear()

    def find(self, name: TableName) -> SqlTable | None:
        """A table as it is known, or None where there is none and one may be made."""
        table = self._known.get(name)
        if table is None:
            with self._link.transaction():
                table = self._look(name)
        if table is None and self._create is Create.NOTHING:
            raise Refused(
                f"{self._link.database.place} has no table {shown(str(name))}",
                'make it, or let it be made: create = "tables"',
            )
        return table

    def form(
        self,
        name: TableName,
        fields: tuple[str, ...],
        key: tuple[str, ...],
        documents: Sequence[Document],
    ) -> Form:
        """How these documents, which all have these fields, become rows. Makes what is missing, if
        it may; else `Refused`."""
        known = self._forms.get((name, fields, key))
        if known is not None:
            return known
        table = self.find(name)
        needed = self._missing(table, fields, documents)
        if table is None or needed:
            table = self._made(name, fields, key, documents)
        present = tuple(each for each in fields if self._fold(each) in table.columns)
        form = self._form(table, present, key)
        if len(present) == len(fields):
            self._forms[name, fields, key] = form
        return form

    def key(self, table: SqlTable, key: Sequence[str]) -> tuple[SqlColumn, ...]:
        """The columns of a key; `Refused` where the table lacks one."""
        missing = [each for each in key if self._fold(each) not in table.columns]
        if missing:
            raise Refused(
                f"table {shown(str(table.name))} has no column {shown(missing[0])}, "
                "which is of the row's identity"
            )
        return tuple(table.columns[self._fold(each)] for each in key)

    def _fold(self, name: str) -> str:
        return self._naming.fold(name)

    def _form(self, table: SqlTable, fields: tuple[str, ...], key: tuple[str, ...]) -> Form:
        folded = [self._fold(each) for each in fields]
        if not folded:
            raise self._empty(table.name)
        if len(set(folded)) < len(folded):
            twice = next(each for each in folded if folded.count(each) > 1)
            raise Refused(f"column {shown(twice)} would get the values of several fields")
        columns = tuple(table.columns[each] for each in folded)
        return make_form(self._statements, table, fields, columns, self.key(table, key))

    def _empty(self, name: TableName) -> Refused:
        return Refused(f"it has no value for any column of table {shown(str(name))}")

    def _missing(
        self, table: SqlTable | None, fields: tuple[str, ...], documents: Sequence[Document]
    ) -> dict[str, Kind]:
        """The fields that no column is there for, but some value."""
        columns = {} if table is None else table.columns
        needed = {}
        for each in fields:
            if self._fold(each) not in columns:
                kind = kind_of([document[each] for document in documents])
                if kind is not None:
                    needed[each] = kind
        return needed

    def _made(
        self,
        name: TableName,
        fields: tuple[str, ...],
        key: tuple[str, ...],
        documents: Sequence[Document],
    ) -> SqlTable:
        with making_tables(self._link):
            # Somebody else may have made it since.
            table = self._look(name)
            needed = self._missing(table, fields, documents)
            if table is None and not needed:
                raise self._empty(name)
            if table is None:
                self._create_table(name, needed, key)
            elif needed:
                self._add_columns(table, needed)
            table = self._look(name)
        self._forms.clear()
        assert table is not None
        return table

    def _create_table(self, name: TableName, kinds: dict[str, Kind], key: tuple[str, ...]) -> None:
        self._check(kinds)
        nested = [each for each in key if kinds[each] is Kind.NESTED]
        if nested:
            raise Refused(f"column {shown(nested[0])} is of a key, and its value is nested")
        columns = [self._column(each, kind, key=each in key) for each, kind in kinds.items()]
        parts = [PrimaryKeyConstraint(*key)] if key else []
        connection = self._link.connection
        if name.schema is not None and not inspect(connection).has_schema(name.schema):
            connection.execute(CreateSchema(name.schema, if_not_exists=True))
        table = Table(name.name, MetaData(), *columns, *parts, schema=name.schema, quote=True)
        connection.execute(CreateTable(table))

    def _add_columns(self, table: SqlTable, kinds: dict[str, Kind]) -> None:
        if self._create is not Create.COLUMNS:
            names = ", ".join(map(shown, kinds))
            raise Refused(
                f"table {shown(str(table.name))} has no column {names}",
                'add it, leave the field out, or let it be added: create = "columns"',
            )
        self._check(kinds)
        for each, kind in kinds.items():
            column = self._column(each, kind, key=False)
            definition = CreateColumn(column).compile(dialect=self._link.dialect)
            self._link.cursor.execute(f"ALTER TABLE {table.quoted} ADD COLUMN {definition}", ())

    def _check(self, names: Mapping[str, Kind]) -> None:
        for each in names:
            try:
                self._naming.check(each, "column")
            except ValueError as error:
                raise Refused(str(error)) from None

    def _column(self, name: str, kind: Kind, *, key: bool) -> Column[Any]:
        type_ = type_for(kind, key=key, dialect=self._link.dialect.name)
        return Column(name, type_, nullable=not key, quote=True, autoincrement=False)

    def _look(self, name: TableName) -> SqlTable | None:
        inspector = inspect(self._link.connection)
        try:
            found = inspector.get_columns(name.name, name.schema)
            primary = inspector.get_pk_constraint(name.name, name.schema)
            keys: list[list[Any]] = [primary["constrained_columns"]]
            keys += [
                each["column_names"]
                for each in inspector.get_unique_constraints(name.name, name.schema)
            ]
            keys += [
                each["column_names"]
                for each in inspector.get_indexes(name.name, name.schema)
                if each["unique"] and not _is_partial(each)
            ]
        except NoSuchTableError:
            return None
        columns = {
            self._fold(each["name"]): SqlColumn(
                each["name"],
                not each["nullable"] and each["default"] is None and not _is_made(each),
                conversion(self._link.dialect.name, each["type"]),
            )
            for each in found
        }
        unique = frozenset(frozenset(each) for each in keys if each and all(each))
        table = SqlTable(name, self._statements.table(name), columns, unique)
        self._known[name] = table
        return table


def _is_partial(index: Mapping[str, Any]) -> bool:
    options = index.get("dialect_options", {})
    return any(name.endswith("_where") for name in options)


def _is_made(column: Mapping[str, Any]) -> bool:
    """Whether the database makes the column's values."""
    return bool(
        column.get("computed") or column.get("identity") or column.get("autoincrement") is True
    )
