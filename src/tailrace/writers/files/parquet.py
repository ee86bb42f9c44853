"""The `parquet` writer: a table of Parquet files for each namespace."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.pipeline.writer import Staged
from tailrace.writers.files.column_types import parse_type
from tailrace.writers.files.evolution import TableEvolution
from tailrace.writers.files.parquet_encoder import ParquetEncoder
from tailrace.writers.files.schema_store import SchemaStore
from tailrace.writers.files.staged_writer import (
    StagedWriter,
    directory_meta,
    file_name_part,
    parse_choice,
)
from tailrace.writers.files.table_schema import META, CompressionName


class ParquetCompression(StrEnum):
    """The compression of the columns."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4 = "lz4"
    NONE = "none"


class ParquetWriter(StagedWriter, frozen=True):
    """Writes Parquet files, exactly once: one file for each namespace and batch.

    All files of a namespace have one schema. The type of a column comes from `schema`, or else from
    its values, and widens with them; older files are rewritten then. A value that does not fit its
    column is refused.
    """

    path: Annotated[str, directory_meta("out-parquet/")]
    compression: Annotated[
        CompressionName,
        Meta(description="The compression: zstd, snappy, gzip, lz4 or none.", examples=["snappy"]),
    ] = "zstd"
    schema: Annotated[
        dict[str, str],
        Meta(
            description="Column types by name. These columns are in every file; other columns come"
            " from the documents.",
            examples=[{"id": "int64", "total": "decimal(10, 2)", "tags": "list<string>"}],
        ),
    ] = msgspec.field(default_factory=dict)
    meta: Annotated[
        bool,
        Meta(
            description="Add the columns _op, _offset, _timestamp and _namespace. Without them,"
            " deletes are refused.",
        ),
    ] = True

    takes_columns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        parse_choice("compression", self.compression, ParquetCompression)
        for name, text in self.schema.items():
            parse_type(text)
            if self.meta and name in META:
                raise InvalidValue("schema", name, f"names other than {', '.join(META)}")

    def new_encoder(self, writer: str) -> ParquetEncoder:
        """Return the encoder of Parquet files, which starts with the recorded schemas."""
        store = SchemaStore(self.destination(), file_name_part(writer))
        return ParquetEncoder(store, self.schema, meta=self.meta, compression=self.compression)

    def begin(self, writer: str, open_plan: str | None) -> None:
        """Remove staged files, and finish the rewriting of files that a crash interrupted."""
        super().begin(writer, open_plan)
        self._evolution(writer).finish_interrupted()

    def unify(self, writer: str, staged: Sequence[Staged]) -> Sequence[Staged | None]:
        """Return the staged files in one schema for each table."""
        return self._evolution(writer).unify(staged)

    def publish(self, writer: str, staged: Sequence[Staged]) -> None:
        """Rewrite older files to the schema of the staged ones, then publish these."""
        evolution = self._evolution(writer)
        evolution.publish_schemas(staged)
        super().publish(writer, staged)
        evolution.adopt(staged)

    def forget(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Move the files from `start` on aside. A table without files forgets its schema."""
        super().forget(writer, stream, start, hub)
        self._evolution(writer).forget_empty()

    def _evolution(self, writer: str) -> TableEvolution:
        return TableEvolution(self.destination(), writer, self.compression)
