"""Tables as they were when they were looked at, and the way of documents into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from tailrace.pipeline.rows import Document
from tailrace.writers.sql_errors import Refused
from tailrace.writers.sql_names import TableName, shown
from tailrace.writers.sql_statements import Statements
from tailrace.writers.sql_values import Conversion


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column that a row may have a value for; one that is `required` must get one."""

    name: str
    required: bool
    conversion: Conversion


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table as it was when it was looked at. `columns` are by their names as the database tells
    them apart; `unique` are the sets of columns that no two rows agree in."""

    name: TableName
    quoted: str
    columns: Mapping[str, SqlColumn]
    unique: frozenset[frozenset[str]]


@dataclass(frozen=True, slots=True)
class Form:
    """How documents with the same fields become rows of a table.

    `key` are the columns by which a row is found, none where rows have no identity. The rest is
    SQL: `update` sets all columns but the key, `move` the key too; there is no `upsert` where the
    table cannot tell that a row is there, or where a new row would need more than these columns.
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
        """The names of the key's columns."""
        return [column.name for column in self.key]

    def update_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """What `update` takes for a row."""
        value = dict(zip(self.names, row, strict=True))
        key = self.key_names
        return tuple(value[name] for name in (*_but(self.names, key), *key))

    def rows(self, documents: Sequence[Document]) -> list[tuple[Any, ...]]:
        """What a statement takes for each document; `Refused` for what a column cannot hold."""
        if len(documents) == 1:
            return [tuple(map(converted, self.columns, self.values(documents[0])))]
        columns = zip(*map(self.values, documents), strict=True)
        return list(zip(*map(_converted_all, self.columns, columns), strict=True))


def converted(column: SqlColumn, value: Any) -> Any:
    """A value as a column takes it, or `Refused`."""
    convert, passes = column.conversion
    if type(value) in passes:
        return value
    try:
        return convert(value)
    except ValueError as error:
        raise Refused(f"column {shown(column.name)}: {error}") from None


def _converted_all(column: SqlColumn, values: Sequence[Any]) -> Sequence[Any]:
    if column.conversion.passes.issuperset(map(type, values)):
        return values
    return [converted(column, value) for value in values]


def make_form(
    statements: Statements,
    table: SqlTable,
    fields: Sequence[str],
    columns: tuple[SqlColumn, ...],
    key: tuple[SqlColumn, ...],
) -> Form:
    """How documents with these fields become rows: each field is the value of a column."""
    names, key_names = ([each.name for each in some] for some in (columns, key))
    whole = {each for each in table.columns.values() if each.required} <= set(columns)
    found = frozenset(key_names) in table.unique
    return Form(
        table,
        columns,
        key,
        insert=statements.insert(table.quoted, names),
        update=statements.update(table.quoted, _but(names, key_names), key_names),
        move=statements.update(table.quoted, names, key_names),
        upsert=statements.upsert(table.quoted, names, key_names) if whole and found else None,
        values=_values(fields),
    )


def _values(fields: Sequence[str]) -> Callable[[Document], tuple[Any, ...]]:
    if len(fields) > 1:
        return itemgetter(*fields)
    return lambda document: tuple(document[each] for each in fields)


def _but(names: Sequence[str], key: Sequence[str]) -> Sequence[str]:
    """The columns that an update sets: all but the key, if there are others."""
    return [name for name in names if name not in key] or names
