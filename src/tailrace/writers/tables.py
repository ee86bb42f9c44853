"""Columns of several batches as one table that Parquet can hold."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import pyarrow as pa

from tailrace.pipeline.columns import JSON_TEXT, json_column, without_nulls


def united(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Batches one behind the other. A column that is absent from one is null there; one that is of
    unlike types becomes text with JSON."""
    try:
        if not any(field.metadata for batch in batches for field in batch.schema):
            tables = [pa.Table.from_batches([batch]) for batch in batches]
            return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass
    names = dict.fromkeys(name for batch in batches for name in batch.schema.names)
    pieces = [_united_column(name, batches) for name in names]
    return pa.table([column for column, _ in pieces], schema=pa.schema([f for _, f in pieces]))


def _united_column(
    name: str, batches: Sequence[pa.RecordBatch]
) -> tuple[pa.ChunkedArray[Any], pa.Field[Any]]:
    columns = [_column(batch, name) for batch in batches]
    if not any(is_json for _, is_json in columns):
        try:
            tables = [pa.table({name: column}) for column, _ in columns]
            table = pa.concat_tables(tables, promote_options="permissive")
            return table.column(0), table.schema.field(0)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            pass
    texts = [column if is_json else _as_json(column) for column, is_json in columns]
    field = pa.field(name, pa.string(), metadata=JSON_TEXT)
    return pa.chunked_array(texts, pa.string()), field


def _column(batch: pa.RecordBatch, name: str) -> tuple[pa.Array[Any], bool]:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return pa.nulls(batch.num_rows), False
    return batch.column(index), batch.schema.field(index).metadata is not None


def storable(table: pa.Table, kept: Set[str] = frozenset()) -> pa.Table:
    """A table in types that every reader of Parquet knows.

    Columns in `kept` are as they should be. Others with nothing but nulls are left out. Such fields
    within an object, and empty lists, are of text. Objects without any field are text with JSON.
    """
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        if field.name in kept:
            fields.append(field)
            columns.append(column)
            continue
        if pa.types.is_null(field.type):
            continue
        if _has_empty_struct(field.type):
            column = pa.chunked_array([_as_json(piece) for piece in column.chunks], pa.string())
        else:
            column = column.cast(_storable_type(field.type))
        fields.append(pa.field(field.name, column.type))
        columns.append(column)
    return pa.table(columns, schema=pa.schema(fields))


def _storable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if isinstance(kind, pa.ListType):
        return pa.list_(_storable_type(kind.value_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([(field.name, _storable_type(field.type)) for field in kind.fields])
    return kind


def _has_empty_struct(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.ListType):
        return _has_empty_struct(kind.value_type)
    if isinstance(kind, pa.StructType):
        return not kind.fields or any(_has_empty_struct(field.type) for field in kind.fields)
    return False


def _as_json(column: pa.Array[Any]) -> pa.Array[Any]:
    return json_column(without_nulls(value) for value in column.to_pylist())
