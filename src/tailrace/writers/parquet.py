"""`parquet`: a table of Parquet files for each namespace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

from tailrace.errors import InvalidValue
from tailrace.log.schema import TIMESTAMP
from tailrace.message import Op
from tailrace.pipeline.rows import RowError, Rows
from tailrace.writers.column_types import ColumnType, Misfit, convert, parse_type
from tailrace.writers.file import refuse_deletes
from tailrace.writers.runs import Content
from tailrace.writers.staging import StagedWriter, chosen, directory_meta
from tailrace.writers.tables import storable, united

_META: Final[dict[str, pa.DataType]] = {
    "_op": pa.string(),
    "_offset": pa.int64(),
    "_timestamp": TIMESTAMP,
    "_namespace": pa.string(),
}
"""What a record was, in columns beside its document."""

_OPS: Final = pa.array([op.name.lower() for op in Op])


class Compression(StrEnum):
    """How columns are compressed."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4 = "lz4"
    NONE = "none"


class ParquetWriter(StagedWriter, frozen=True):
    """Parquet files, exactly once: one for each namespace and batch.

    A column has its type from `schema`, or else from what a file's documents have in it. Values
    that do not fit a type of the schema are refused.
    """

    path: Annotated[str, directory_meta("out-parquet/")]
    compression: Annotated[
        Literal["zstd", "snappy", "gzip", "lz4", "none"],
        Meta(description="zstd, snappy, gzip, lz4 or none.", examples=["snappy"]),
    ] = "zstd"
    schema: Annotated[
        dict[str, str],
        Meta(
            description="Types of columns by name. These are in every file; others come from the"
            " documents.",
            examples=[{"id": "int64", "total": "decimal(10, 2)", "tags": "list<string>"}],
        ),
    ] = msgspec.field(default_factory=dict)
    meta: Annotated[
        bool,
        Meta(
            description="Adds the columns _op, _offset, _timestamp and _namespace. Without them a"
            " delete is refused.",
        ),
    ] = True

    takes_columns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse types that there are not."""
        super().__post_init__()
        chosen("compression", self.compression, Compression)
        for name, text in self.schema.items():
            parse_type(text)
            if self.meta and name in _META:
                raise InvalidValue("schema", name, f"names other than {', '.join(_META)}")

    @property
    def format(self) -> Table:
        """Columns."""
        types = {name: parse_type(text) for name, text in self.schema.items()}
        return Table(types, self.meta, Compression(self.compression))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as a table: the columns of the schema, those of the documents, those of the records."""

    types: dict[str, ColumnType]
    meta: bool
    compression: Compression

    @property
    def suffix(self) -> str:
        """``.parquet``."""
        return ".parquet"

    def encode(self, rows: Rows) -> pa.RecordBatch:
        """The columns of some rows; which others there are, and of which types, is still open."""
        if not self.meta:
            refuse_deletes(rows, "meta = true")
        batch = self._documents(rows)
        return self._with_meta(batch, rows) if self.meta else batch

    def create(self, stream: pa.NativeFile) -> Content:
        """Rows are kept until all are there, because their types are known only then."""
        return _Collected(stream, self)

    def _documents(self, rows: Rows) -> pa.RecordBatch:
        batch = rows.columns
        if not self.types:
            return batch
        typed = {name: self._typed(rows, name) for name in self.types}
        rest = {
            field.name: (column, field)
            for field, column in zip(batch.schema, batch.columns, strict=True)
            if field.name not in typed
        }
        fields = [pa.field(name, self.types[name].arrow) for name in typed]
        return pa.RecordBatch.from_arrays(
            [*typed.values(), *(column for column, _ in rest.values())],
            schema=pa.schema([*fields, *(field for _, field in rest.values())]),
        )

    def _typed(self, rows: Rows, name: str) -> pa.Array[Any]:
        try:
            return convert([each.get(name) for each in rows.documents], self.types[name])
        except Misfit as misfit:
            reason = f"field {name!r}: {misfit.reason}"
            raise RowError(rows.offsets[misfit.index], reason) from None

    def _with_meta(self, batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
        for name in _META.keys() & set(batch.schema.names):
            has_it = batch[name].is_valid().to_numpy(zero_copy_only=False)
            if has_it.any():
                offset = rows.offsets[int(has_it.argmax())]
                remedy = "rename it with the function rename, or set meta = false"
                raise RowError(offset, f"it has a field {name!r} of its own · {remedy}")
            batch = batch.drop_columns([name])
        records = rows.records
        [namespace] = rows.take([0]).namespaces  # The session gives rows of one alone.
        meta = (
            _OPS.take(records["op"]),
            records["offset"],
            records["timestamp"],
            pa.repeat(namespace, len(rows)),
        )
        fields = [pa.field(name, kind) for name, kind in _META.items()]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *meta], schema=pa.schema([*batch.schema, *fields])
        )


class _Collected:
    """The rows of a file, until all are there."""

    def __init__(self, stream: pa.NativeFile, table: Table) -> None:
        self._stream = stream
        self._table = table
        self._batches: list[pa.RecordBatch] = []

    def add(self, encoded: Any) -> None:
        self._batches.append(encoded)

    def end(self) -> None:
        kept = set(self._table.types)
        table = storable(_ordered(united(self._batches)), kept)
        pq.write_table(table, self._stream, compression=self._table.compression.value)


def _ordered(table: pa.Table) -> pa.Table:
    """The columns of the records behind those of the documents."""
    names: Sequence[str] = table.column_names
    return table.select(sorted(names, key=lambda name: name in _META))
