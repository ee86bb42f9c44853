"""The recorded schemas of the tables of a writer, beside its files.

    PATH/_tailrace/schema/WRITER/TABLE/schema.json

A *table* is a directory of published files, which readers read as a whole. The record is with the
files and not in the hub, because it describes them: executors read it without the hub, and it stays
right if the path of the writer changes or the hub is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.writers.files.column_types import type_text
from tailrace.writers.files.destination import Destination
from tailrace.writers.files.table_schema import META, TableSchema, integer_type, is_json_type
from tailrace.writers.files.value_type import (
    Declared,
    ListOf,
    ObjectOf,
    ScalarType,
    ValueType,
    absorb,
)

SCHEMA: Final = "_tailrace/schema"

_FILE: Final = "schema.json"
_SCALARS: Final = {
    pa.bool_(): ScalarType.BOOLEAN,
    pa.float64(): ScalarType.NUMBER,
    pa.string(): ScalarType.TEXT,
}

_META_TYPES: Final = {
    "_op": ScalarType.TEXT,
    "_offset": ScalarType.INTEGER,
    "_timestamp": Declared("timestamp"),
    "_namespace": ScalarType.TEXT,
}


class TableRecord(msgspec.Struct, frozen=True):
    """The schema of a table. Until it is `rewritten`, files of the table may have an older one."""

    schema: TableSchema
    rewritten: bool = True


class SchemaStore:
    """The records of one writer. Only its driver writes them."""

    def __init__(self, destination: Destination, writer: str) -> None:
        self._destination = destination
        self._directory = f"{SCHEMA}/{writer}"

    def read(self, table: str) -> TableRecord | None:
        """Return the record of a table; None if it has none."""
        data = self._destination.read(self._name(table))
        return None if data is None else msgspec.json.decode(data, type=TableRecord)

    def write(self, table: str, record: TableRecord) -> None:
        """Store the record of a table, in one atomic step."""
        data = msgspec.json.format(msgspec.json.encode(record))
        self._destination.replace(self._name(table), data)

    def remove(self, table: str) -> None:
        """Remove the record of a table."""
        self._destination.remove(self._name(table))

    def tables(self) -> list[str]:
        """Return the tables that have a record."""
        names = (name.removeprefix(self._directory) for name in self._files())
        return [
            name.strip("/") for name, end, _ in (n.rpartition(f"/{_FILE}") for n in names) if end
        ]

    def _files(self) -> list[str]:
        return self._destination.files(self._directory)

    def _name(self, table: str) -> str:
        return "/".join(part for part in (self._directory, table, _FILE) if part)


def schema_of_files(files: Iterable[Mapping[str, ValueType]]) -> TableSchema:
    """Return a schema for files without a record, from the types of each file.

    An earlier version may have written them. A column whose types in the files cannot be reconciled
    is text.
    """
    columns: dict[str, ValueType] = {}
    for file in files:
        for name, kind in file.items():
            known = columns.get(name, ScalarType.NULL)
            columns[name] = absorb(known, kind) or ScalarType.TEXT
    meta = all(columns.get(name) == kind for name, kind in _META_TYPES.items())
    if meta:
        columns = {name: kind for name, kind in columns.items() if name not in META}
    return TableSchema(columns, meta)


def types_of_file(file: pq.ParquetFile) -> dict[str, ValueType]:
    """Return the types of the columns of a file."""
    leaves = _bounds(file)
    return {field.name: _type_of(field.type, leaves) for field in file.schema_arrow}


def _bounds(file: pq.ParquetFile) -> Iterator[tuple[Any, Any]]:
    """Yield the least and the greatest value of each column without parts, by the statistics."""
    metadata: Any = file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for leaf in range(metadata.num_columns):
        found = [group.column(leaf).statistics for group in groups]
        known = [each for each in found if each is not None and each.has_min_max]
        yield min((s.min for s in known), default=0), max((s.max for s in known), default=0)


def _type_of(kind: pa.DataType, leaves: Iterator[tuple[Any, Any]]) -> ValueType:
    if not is_json_type(kind):
        for _ in range(_leaf_count(kind)):
            next(leaves)
        return Declared(type_text(kind))
    if isinstance(kind, pa.ListType):
        return ListOf(_type_of(kind.value_type, leaves))
    if isinstance(kind, pa.StructType):
        return ObjectOf({field.name: _type_of(field.type, leaves) for field in kind.fields})
    bounds = next(leaves)
    return integer_type(*bounds) if kind == pa.int64() else _SCALARS[kind]


def _leaf_count(kind: pa.DataType) -> int:
    if isinstance(kind, pa.ListType):
        return _leaf_count(kind.value_type)
    if isinstance(kind, pa.StructType):
        return sum(_leaf_count(field.type) for field in kind.fields)
    return 1
