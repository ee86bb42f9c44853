"""Encodes rows for Parquet files: columns of the documents and of the records, in one schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.message import OP_NAMES
from tailrace.pipeline.transform.json_columns import FEW
from tailrace.pipeline.transform.rows import RowError, Rows
from tailrace.writers.files.column_types import TypeMismatch, convert, parse_type
from tailrace.writers.files.schema_store import SchemaStore
from tailrace.writers.files.staged_session import FileContent
from tailrace.writers.files.staged_writer import refuse_deletes
from tailrace.writers.files.table_schema import (
    META,
    CompressionName,
    TableSchema,
    arrow_type,
    fit_table,
    is_json_type,
    type_of_column,
)
from tailrace.writers.files.value_type import (
    Declared,
    ScalarType,
    ValueType,
    absorb,
    accept,
    convert_value,
)

_OPS: Final = pa.array(OP_NAMES)
_NO_SCHEMA: Final = TableSchema()


class ParquetEncoder:
    """A `FileEncoder` for one session. It knows the schema of each table, and widens it.

    Rows are accepted in the order of their offsets, so the first value of a column decides its
    type, whatever the size of a batch.
    """

    suffix = ".parquet"

    def __init__(
        self,
        store: SchemaStore,
        declared: Mapping[str, str],
        *,
        meta: bool,
        compression: CompressionName,
    ) -> None:
        self.compression = compression
        self._store = store
        self._declared = declared
        self._meta = meta
        self._recorded: dict[str, TableSchema] = {}
        self._schemas: dict[str, TableSchema] = {}

    def encode(self, parts: Sequence[tuple[str, Rows]]) -> list[pa.RecordBatch]:
        """Return the columns of the rows, and widen the schemas of their tables by them."""
        schemas: dict[str, TableSchema] = {}
        encoded = []
        for table, rows in parts:
            if not self._meta:
                refuse_deletes(rows, "meta = true")
            known = schemas.get(table) or self.schema(table)
            columns, schemas[table] = self._encode(rows, known)
            encoded.append(pa.RecordBatch.from_arrays([*columns.values()], names=[*columns]))
        self._schemas |= schemas
        return encoded

    def create(self, stream: pa.NativeFile, table: str) -> FileContent:
        """Begin a file. It collects its rows: their types are known only when all are there."""
        return _ParquetContent(stream, self, table)

    def schema(self, table: str) -> TableSchema:
        """Return the schema of a table, widened by all rows so far."""
        schema = self._schemas.get(table)
        if schema is None:
            record = self._store.read(table)
            self._recorded[table] = recorded = _NO_SCHEMA if record is None else record.schema
            schema = recorded.with_declared(self._declared, meta=self._meta)
            self._schemas[table] = schema
        return schema

    def is_recorded(self, table: str) -> bool:
        """True if the schema of a table is the recorded one."""
        return self._schemas[table] == self._recorded[table]

    def _encode(self, rows: Rows, known: TableSchema) -> tuple[dict[str, Any], TableSchema]:
        types = dict(known.columns)
        columns: dict[str, pa.Array[Any]] = {}
        for name, column in _columns_of(rows):
            kind = types.get(name, ScalarType.NULL)
            if known.meta and name in META:
                _refuse_reserved(name, rows)
            elif not isinstance(kind, Declared):
                columns[name], types[name] = _fit(rows, name, column, kind)
        for name, kind in known.columns.items():
            if isinstance(kind, Declared):
                columns[name] = _convert(rows, name, kind)
        schema = TableSchema(
            {name: kind for name, kind in types.items() if kind is not ScalarType.NULL}, known.meta
        )
        if not schema.columns and not schema.meta and len(rows):
            raise RowError(rows.offsets[0], "it has no value for any column")
        if self._meta:
            columns |= _meta_columns(rows)
        if not columns:  # Columns know the number of rows.
            columns[next(iter(schema.arrow.names))] = pa.nulls(len(rows))
        return columns, schema


def _columns_of(rows: Rows) -> Iterator[tuple[str, pa.Array[Any] | None]]:
    """Yield the name of each field with its column; None if its values must be read one by one.

    They have several types, or types that JSON lacks, or are so few that a column of them costs
    more than they do.
    """
    if len(rows) < FEW:
        for name in dict.fromkeys(chain.from_iterable(rows.documents)):
            yield name, None
        return
    batch = rows.columns
    for field, column in zip(batch.schema, batch.columns, strict=True):
        typed = not field.metadata and is_json_type(field.type)
        yield field.name, column if typed else None


def _fit(
    rows: Rows, name: str, column: pa.Array[Any] | None, known: ValueType
) -> tuple[pa.Array[Any], ValueType]:
    """Return a column of documents and its type, which is the known type or a wider one."""
    if column is not None:
        wider = absorb(known, type_of_column(column))
        if wider is not None:
            return column, wider
    values = [each.get(name) for each in rows.documents]
    kind = known
    for index, value in enumerate(values):
        try:
            kind = accept(kind, value)
        except (TypeError, ValueError) as error:
            raise _refused(rows, index, name, str(error)) from None
    if isinstance(kind, Declared):
        return _convert(rows, name, kind), kind
    try:
        return pa.array([convert_value(value, kind) for value in values], arrow_type(kind)), kind
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _refused(rows, 0, name, str(error)) from None


def _convert(rows: Rows, name: str, kind: Declared) -> pa.Array[Any]:
    try:
        return convert([each.get(name) for each in rows.documents], parse_type(kind.text))
    except TypeMismatch as error:
        raise _refused(rows, error.index, name, error.reason) from None


def _refused(rows: Rows, index: int, name: str, reason: str) -> RowError:
    return RowError(rows.offsets[index], f"field {name!r}: {reason}")


def _refuse_reserved(name: str, rows: Rows) -> None:
    """Raise `RowError` for the first document with a field that is a column of the record."""
    for offset, document in zip(rows.offsets, rows.documents, strict=True):
        if document.get(name) is not None:
            remedy = "rename it with the function rename, or set meta = false"
            raise RowError(offset, f"its field {name!r} is reserved for the record · {remedy}")


def _meta_columns(rows: Rows) -> dict[str, pa.Array[Any]]:
    records = rows.records
    # A session encodes the rows of one namespace at a time.
    [namespace] = rows.take([0]).namespaces
    columns = (
        _OPS.take(records["op"]),
        records["offset"],
        records["timestamp"],
        pa.repeat(namespace, len(rows)),
    )
    return dict(zip(META, columns, strict=True))


class _ParquetContent:
    """Collects the rows of a file."""

    def __init__(self, stream: pa.NativeFile, encoder: ParquetEncoder, table: str) -> None:
        self._stream = stream
        self._encoder = encoder
        self._table = table
        self._batches: list[pa.RecordBatch] = []

    def add(self, encoded: Any) -> None:
        self._batches.append(encoded)

    def end(self) -> TableSchema | None:
        schema = self._encoder.schema(self._table)
        alike = groupby(self._batches, lambda batch: batch.schema)
        tables = [pa.Table.from_batches(list(some)).combine_chunks() for _, some in alike]
        table = pa.concat_tables([fit_table(each, schema) for each in tables])
        pq.write_table(table, self._stream, compression=self._encoder.compression)
        return None if self._encoder.is_recorded(self._table) else schema
