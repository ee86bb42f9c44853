"""The columns of a table, and the layout by which documents become its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from tailrace.pipeline.transform.rows import Document
from tailrace.writers.fitting import FractionalNumber
from tailrace.writers.sql.errors import RowsRefused
from tailrace.writers.sql.names import TableName, display_name
from tailrace.writers.sql.statements import Statements
from tailrace.writers.sql.values import Conversion


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of a table. A new row must have a value for a `required` column.

    A column that `widens` has 64-bit integers, and can be changed to numbers.
    """

    name: str
    required: bool
    conversion: Conversion
    widens: bool


class NarrowColumn(RowsRefused):
    """A fraction for a column of integers, which could be widened."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason, "change the type of the column")
        self.column = column
        self.table: TableName | None = None
        """The table, if a row is to be written to it."""


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table, as it was when it was inspected.

    `columns` are by folded name, see `Naming.fold`. `unique` has the column sets of its primary key
    and unique indexes.
    """

    name: TableName
    quoted: str
    columns: Mapping[str, SqlColumn]
    unique: frozenset[frozenset[str]]


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How documents with the same fields become rows of a table.

    `key` are the columns that identify a row; none if rows have no identity. `insert`, `update`,
    `move` and `upsert` are SQL: `update` sets all columns but the key, `move` sets the key too.
    `upsert` is None if the table has no unique index on the key, or if a new row requires other
    columns. `values` returns the values of a document.
    """

    table: SqlTable
    columns: tuple[SqlColumn, ...]
    key: tuple[SqlColumn, ...]
    insert: str
    update: str
    move: str
    upsert: str | None
    values: Callable[[Document], tuple[Any, ...]]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def key_names(self) -> list[str]:
        """The names of the key columns."""
        return [column.name for column in self.key]

    def update_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """Return the parameters of `update` for a row."""
        value = dict(zip(self.names, row, strict=True))
        key = self.key_names
        return tuple(value[name] for name in (*_updated_columns(self.names, key), *key))

    def rows(self, documents: Sequence[Document]) -> list[tuple[Any, ...]]:
        """Return documents as rows; raise `RowsRefused` for a value that a column cannot hold."""
        try:
            if len(documents) == 1:
                return [tuple(map(convert_value, self.columns, self.values(documents[0])))]
            columns = zip(*map(self.values, documents), strict=True)
            return list(zip(*map(_convert_column, self.columns, columns), strict=True))
        except NarrowColumn as error:
            error.table = self.table.name
            raise


def convert_value(column: SqlColumn, value: Any) -> Any:
    """Return a value converted for a column; raise `RowsRefused` if it cannot be."""
    convert, passes = column.conversion
    if type(value) in passes:
        return value
    try:
        return convert(value)
    except FractionalNumber as error:
        reason = f"column {display_name(column.name)}: {error}"
        if column.widens:
            raise NarrowColumn(column.name, reason) from None
        raise RowsRefused(reason, "change the type of the column") from None
    except ValueError as error:
        raise RowsRefused(f"column {display_name(column.name)}: {error}") from None


def _convert_column(column: SqlColumn, values: Sequence[Any]) -> Sequence[Any]:
    if column.conversion.passes.issuperset(map(type, values)):
        return values
    return [convert_value(column, value) for value in values]


def make_layout(
    statements: Statements,
    table: SqlTable,
    fields: Sequence[str],
    columns: tuple[SqlColumn, ...],
    key: tuple[SqlColumn, ...],
) -> RowLayout:
    """Return the layout for documents with these fields; field i is the value of column i."""
    names, key_names = ([each.name for each in some] for some in (columns, key))
    whole = {each for each in table.columns.values() if each.required} <= set(columns)
    found = frozenset(key_names) in table.unique
    return RowLayout(
        table,
        columns,
        key,
        insert=statements.insert(table.quoted, names),
        update=statements.update(table.quoted, _updated_columns(names, key_names), key_names),
        move=statements.update(table.quoted, names, key_names),
        upsert=statements.upsert(table.quoted, names, key_names) if whole and found else None,
        values=_values(fields),
    )


def _values(fields: Sequence[str]) -> Callable[[Document], tuple[Any, ...]]:
    if len(fields) > 1:
        return itemgetter(*fields)
    return lambda document: tuple(document[each] for each in fields)


def _updated_columns(names: Sequence[str], key: Sequence[str]) -> Sequence[str]:
    """Return the columns that an update sets: all but the key, or all if there are no others."""
    return [name for name in names if name not in key] or names
