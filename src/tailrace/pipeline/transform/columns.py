"""Documents as Arrow columns: one column for each field, typed by the values of the field.

Whole numbers are int64, others double, a mix of both is double if that loses no precision; text is
string, objects are structs, lists are lists. A field with values of several types, or with numbers
beyond these types, is text with the JSON of each value. Absent and null are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, cast

import msgspec
import pyarrow as pa

JSON_TEXT: Final = {b"tailrace": b"json"}
"""The metadata of a field whose column has JSON as text."""

_CONFLICTS: Final = (pa.ArrowException, OverflowError, UnicodeEncodeError)

_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode


def columns_of(documents: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return documents as columns, in the order in which the fields first occur.

    `TypeError` or `ValueError` for a value that JSON cannot represent.
    """
    try:
        struct: Any = pa.array(cast("Any", documents), from_pandas=False)
        return pa.RecordBatch.from_struct_array(struct)
    except _CONFLICTS:
        names = dict.fromkeys(chain.from_iterable(documents))
        fields = [_column(name, [each.get(name) for each in documents]) for name in names]
        columns = [column for column, _ in fields]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([f for _, f in fields]))


def _column(name: str, values: list[Any]) -> tuple[pa.Array[Any], pa.Field[Any]]:
    try:
        column = pa.array(values, from_pandas=False)
        return column, pa.field(name, column.type)
    except _CONFLICTS:
        return json_column(values), pa.field(name, pa.string(), metadata=JSON_TEXT)


def documents_of(columns: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return columns as documents, without the fields that are null."""
    texts = [field.name for field in columns.schema if field.metadata == JSON_TEXT]
    documents: list[dict[str, Any]] = [without_nulls(each) for each in columns.to_pylist()]
    for name in texts:
        for document in documents:
            if name in document:
                document[name] = _from_json(document[name])
    return documents


def without_nulls(value: Any) -> Any:
    """Return a value of a column without null fields in its objects.

    Columns cannot distinguish null fields from absent ones.
    """
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def json_column(values: Iterable[Any]) -> pa.Array[Any]:
    """Return a text column with the JSON of each value; null for null."""
    return pa.array([None if v is None else _to_json(v).decode() for v in values], pa.string())
