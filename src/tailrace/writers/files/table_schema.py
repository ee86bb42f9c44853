"""The schema of a table of Parquet files, and columns converted to it.

Parquet has no type for a column that is only null, and none for an object without fields. Until
such a type widens, a column that is only null is left out, null parts of a value are text without
values, and objects without fields are the text ``{}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import ConfigError
from tailrace.log.schema import TIMESTAMP
from tailrace.pipeline.transform.columns import without_nulls
from tailrace.writers.files.column_types import parse_type
from tailrace.writers.files.value_type import (
    Declared,
    ListOf,
    ObjectOf,
    ScalarType,
    ValueType,
    absorb,
    describe,
)
from tailrace.writers.fitting import EXACT_MAX, to_text

CompressionName: TypeAlias = Literal["zstd", "snappy", "gzip", "lz4", "none"]

META: Final[dict[str, pa.DataType]] = {
    "_op": pa.string(),
    "_offset": pa.int64(),
    "_timestamp": TIMESTAMP,
    "_namespace": pa.string(),
}
"""The columns of the record, after those of the document."""

_ARROW: Final[dict[ScalarType, pa.DataType]] = {
    ScalarType.NULL: pa.string(),
    ScalarType.BOOLEAN: pa.bool_(),
    ScalarType.INTEGER: pa.int64(),
    ScalarType.LARGE_INTEGER: pa.int64(),
    ScalarType.NUMBER: pa.float64(),
    ScalarType.TEXT: pa.string(),
}
_SCALARS: Final = {
    pa.null().id: ScalarType.NULL,
    pa.bool_().id: ScalarType.BOOLEAN,
    pa.int64().id: ScalarType.INTEGER,
    pa.float64().id: ScalarType.NUMBER,
    pa.string().id: ScalarType.TEXT,
}
"""The types of Arrow's type numbers, which are much faster to compare than its types."""

_DIGITS: Final[dict[Any, int]] = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


class TableSchema(msgspec.Struct, frozen=True):
    """The columns of a table, in order. With `meta`, those of the record follow."""

    columns: dict[str, ValueType] = {}
    meta: bool = False

    @property
    def arrow(self) -> pa.Schema:
        """The schema of each file of the table."""
        fields = [
            pa.field(name, arrow_type(kind))
            for name, kind in self.columns.items()
            if kind is not ScalarType.NULL
        ]
        meta = META.items() if self.meta else ()
        return pa.schema([*fields, *(pa.field(name, kind) for name, kind in meta)])

    def widened(self, other: TableSchema) -> TableSchema | None:
        """Return the schema widened by that of later rows; None if it cannot hold all of them."""
        columns = dict(self.columns)
        for name, kind in other.columns.items():
            known = columns.get(name, ScalarType.NULL)
            wider = kind if _is_declared_wider(known, kind) else absorb(known, kind)
            if wider is None:
                return None
            columns[name] = wider
        return TableSchema(columns, self.meta or other.meta)

    def with_declared(self, declared: Mapping[str, str], *, meta: bool) -> TableSchema:
        """Return the schema with declared columns.

        Raises `ConfigError` if the column of that name in the table cannot become one of them.
        """
        columns: dict[str, ValueType] = dict(self.columns)
        for name, text in declared.items():
            kind = Declared(text)
            known = columns.get(name, ScalarType.NULL)
            if not _is_declared_wider(known, kind):
                raise ConfigError(
                    f"schema declares column {name!r} as {text}, but the files of the table have"
                    f" {describe(known)} in it",
                    "declare the type that it has, or rewind the writer to write the table again",
                )
            columns[name] = kind
        return TableSchema(columns, self.meta or meta)


def arrow_type(kind: ValueType) -> pa.DataType:
    """Return the Arrow type with which Parquet stores a type."""
    match kind:
        case ListOf():
            return pa.list_(arrow_type(kind.item))
        case ObjectOf(fields) if fields:
            return pa.struct([(name, arrow_type(each)) for name, each in fields.items()])
        case Declared(text):
            return _declared_arrow(text)
        case ScalarType():
            return _ARROW[kind]
    return pa.string()


@lru_cache(maxsize=1024)
def _declared_arrow(text: str) -> pa.DataType:
    return parse_type(text).arrow


def _is_declared_wider(known: ValueType, new: ValueType) -> bool:
    """True if a declared type can hold all values of the known one."""
    if not isinstance(new, Declared):
        return False
    if known is ScalarType.NULL or known == new:
        return True
    old, target = arrow_type(known), arrow_type(new)
    if old.equals(target):
        return True
    digits = _DIGITS.get(old)
    if digits is None:
        return old.equals(pa.float32()) and target.equals(pa.float64())
    if target.equals(pa.float64()):
        return known is ScalarType.INTEGER or digits <= _DIGITS[pa.int32()]
    if isinstance(target, pa.Decimal128Type):
        return bool(target.precision - target.scale >= digits)
    return bool(_DIGITS.get(target, 0) >= digits)


def is_json_type(kind: pa.DataType) -> bool:
    """True if columns of an Arrow type have JSON values that a `ValueType` other than a declared
    one can describe."""
    if isinstance(kind, pa.ListType):
        return is_json_type(kind.value_type)
    if isinstance(kind, pa.StructType):
        return all(is_json_type(field.type) for field in kind.fields)
    return kind.id in _SCALARS


def type_of_column(column: pa.Array[Any]) -> ValueType:
    """Return the type of the values of a column."""
    kind, parts = column.type, cast("Any", column)
    if column.null_count == len(column):
        return ScalarType.NULL
    if isinstance(kind, pa.ListType):
        return ListOf(type_of_column(parts.flatten()))
    if isinstance(kind, pa.StructType):
        names = [field.name for field in kind.fields]
        fields = {name: type_of_column(parts.field(n)) for n, name in enumerate(names)}
        return ObjectOf({n: each for n, each in fields.items() if each is not ScalarType.NULL})
    found = _SCALARS[kind.id]
    if found is not ScalarType.INTEGER:
        return found
    numbers = (parts.drop_null() if column.null_count else parts).to_numpy()
    return integer_type(numbers.min(), numbers.max())


def integer_type(least: int, most: int) -> ScalarType:
    """Return the type of integers between two numbers."""
    large = least < -EXACT_MAX or most > EXACT_MAX
    return ScalarType.LARGE_INTEGER if large else ScalarType.INTEGER


def fit_table(table: pa.Table, schema: TableSchema) -> pa.Table:
    """Return a table in a schema; a column that is missing is null."""
    target = schema.arrow
    names = set(table.column_names)
    columns = []
    for field in target:
        kind: Any = field.type
        if field.name not in names:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, kind)]))
            continue
        column = table.column(field.name)
        if not column.type.equals(kind):
            wider = schema.columns.get(field.name, ScalarType.NULL)
            column = pa.chunked_array([fit_column(each, wider) for each in column.chunks], kind)
        columns.append(column)
    return pa.table(columns, schema=target)


def fit_column(column: pa.Array[Any], kind: ValueType) -> pa.Array[Any]:
    """Return a column, typed by its values or read from a file, as a column of a wider type."""
    target: Any = arrow_type(kind)
    if column.type == target:
        return column
    if column.null_count == len(column) or kind is ScalarType.NULL:
        nulls: pa.Array[Any] = pa.nulls(len(column), target)
        return nulls
    match kind:
        case ObjectOf(fields):
            return _fit_objects(column, fields, target)
        case ScalarType.TEXT:
            return _texts(column.to_pylist())
        case ListOf(item):
            return _fit_lists(column, item)
    return column.cast(target)


def _fit_objects(
    column: pa.Array[Any], fields: Mapping[str, ValueType], target: Any
) -> pa.Array[Any]:
    if not fields:
        return pa.array([None if v is None else "{}" for v in column.to_pylist()], pa.string())
    struct: Any = column
    children = {}
    if isinstance(column.type, pa.StructType):
        names = [field.name for field in column.type.fields]
        children = {name: struct.field(index) for index, name in enumerate(names)}
    nothing = pa.nulls(len(column))
    arrays: Any = [fit_column(children.get(n, nothing), each) for n, each in fields.items()]
    missing: Any = column.is_null()
    return pa.StructArray.from_arrays(arrays, fields=list(target.fields), mask=missing)


def _fit_lists(column: pa.Array[Any], item: ValueType) -> pa.Array[Any]:
    lists: Any = column
    lengths: Any = pc.list_value_length(lists).fill_null(0)
    ends: Any = pa.array(np.concatenate([[0], np.cumsum(lengths.to_numpy())]).astype(np.int32))
    values = fit_column(lists.flatten(), item)
    return pa.ListArray.from_arrays(ends, values, mask=lists.is_null())


def _texts(values: Iterable[Any]) -> pa.Array[Any]:
    return pa.array([None if v is None else to_text(without_nulls(v)) for v in values], pa.string())
