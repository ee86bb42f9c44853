"""Keeps one schema in all files of a table while the schema widens.

Readers take the schema of a table from its first file. So before the first file of a wider schema
is published, the older files of the table are rewritten to it:

1. The wider schema is sealed with the plan, then recorded beside the files as not rewritten.
2. Each older file is written with the wider schema beside the table, and renamed over the old one.
3. The schema is recorded as rewritten, and the new files are published.

A crash leaves a sealed plan or a record that is not rewritten; the next start continues from there
before it publishes anything. A rewritten file has the same rows under the same name, so a repeated
step changes nothing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.amount import format_amount
from tailrace.errors import Error
from tailrace.pipeline.writer import Staged
from tailrace.writers.files.destination import Destination
from tailrace.writers.files.schema_store import (
    SchemaStore,
    TableRecord,
    schema_of_files,
    types_of_file,
)
from tailrace.writers.files.staged_session import FileMove
from tailrace.writers.files.staged_writer import STAGED, file_name_part, published_files
from tailrace.writers.files.table_schema import CompressionName, TableSchema, fit_table
from tailrace.writers.files.value_type import ValueType

_log = logging.getLogger(__name__)

_NO_SCHEMA: Final = TableSchema()
_MOVES: Any = list[FileMove]
_SCHEMAS: Any = dict[str, TableSchema]


class TableEvolution:
    """Evolves the tables of one writer. For the driver of the writer only."""

    def __init__(self, destination: Destination, writer: str, compression: CompressionName) -> None:
        self._destination = destination
        self._writer = file_name_part(writer)
        self._compression = compression
        self._store = SchemaStore(destination, self._writer)

    def unify(self, staged: Sequence[Staged]) -> list[Staged | None]:
        """Return staged files in one schema for each table, in the order in which they are given.

        None in place of those that cannot be in one schema with the ones before them.
        """
        moves = [msgspec.convert(each.data["files"], _MOVES) for each in staged]
        if not any(move.schema for some in moves for move in some):
            return list(staged)
        tables = {move.table for some in moves for move in some if move.table is not None}
        known = {table: self._recorded(table) for table in tables}
        targets, kept = dict(known), []
        for some in moves:
            wider = _widened(targets, known, some)
            targets = wider or targets
            kept.append(wider is not None)
        unified: list[Staged | None] = []
        changed = {table: schema for table, schema in targets.items() if schema != known[table]}
        for each, some, is_kept in zip(staged, moves, kept, strict=True):
            if not is_kept:
                unified.append(None)
                continue
            files = [self._in_schema(move, known, targets) for move in some]
            data = {"files": msgspec.to_builtins(files), "schemas": msgspec.to_builtins(changed)}
            unified.append(msgspec.structs.replace(each, data=data))
            changed = {}
        return unified

    def publish_schemas(self, staged: Iterable[Staged]) -> None:
        """Evolve the tables to the schemas that a plan was sealed with."""
        for each in staged:
            schemas: dict[str, TableSchema] = msgspec.convert(
                each.data.get("schemas", {}), _SCHEMAS
            )
            for table, schema in schemas.items():
                self._evolve(table, schema)

    def adopt(self, staged: Iterable[Staged]) -> None:
        """Unify the files of a plan that an earlier version sealed, after they are published."""
        moves = [move for each in staged for move in msgspec.convert(each.data["files"], _MOVES)]
        tables = {move.target.rpartition("/")[0] for move in moves if move.table is None}
        for table in tables:
            self._store.remove(table)
        if tables:
            self.finish_interrupted()

    def finish_interrupted(self) -> None:
        """Finish what a crash interrupted, and record the schemas of tables that have no record."""
        recorded = self._store.tables()
        for table in recorded:
            record = self._store.read(table)
            if record is not None and not record.rewritten:
                self._evolve(table, record.schema)
        for table in sorted(self._published_tables().difference(recorded)):
            names = sorted(published_files(self._destination, self._writer, table))
            self._evolve(table, schema_of_files(map(self._file_types, names)))

    def forget_empty(self) -> None:
        """Remove the records of tables without files: their next rows decide their types."""
        for table in set(self._store.tables()) - self._published_tables():
            self._store.remove(table)

    def _published_tables(self) -> set[str]:
        files = published_files(self._destination, self._writer)
        return {name.rpartition("/")[0] for name in files}

    def _recorded(self, table: str) -> TableSchema:
        record = self._store.read(table)
        return _NO_SCHEMA if record is None else record.schema

    def _in_schema(
        self, move: FileMove, known: Mapping[str, TableSchema], targets: Mapping[str, TableSchema]
    ) -> FileMove:
        """Return a staged file in the schema of its table; rewrite it if it has another one."""
        if move.table is None:
            return move
        schema, target = move.schema or known[move.table], targets[move.table]
        source = move.source
        if schema.arrow != target.arrow:
            source = f"{move.source}-{uuid.uuid4().hex[:8]}"
            self._rewrite(move.source, source, target)
            self._destination.sync([source.rpartition("/")[0]])
        return FileMove(source, move.target, move.table)

    def _evolve(self, table: str, schema: TableSchema) -> None:
        record = self._store.read(table)
        if record == TableRecord(schema):
            return
        if record is not None and record.schema.widened(schema) != schema:
            raise self._overtaken(table)
        names: Iterable[str] = ()
        if record is None or not record.rewritten or record.schema.arrow != schema.arrow:
            names = sorted(published_files(self._destination, self._writer, table))
        if names:
            self._store.write(table, TableRecord(schema, rewritten=False))
            self._rewrite_all(table, names, schema)
        self._store.write(table, TableRecord(schema))

    def _rewrite_all(self, table: str, names: Iterable[str], schema: TableSchema) -> None:
        """Rewrite the files of a table that have another schema."""
        target = schema.arrow
        directory = f"{STAGED}/{self._writer}/rewriting"
        count = 0
        for name in names:
            with self._open(name) as file:
                if file.schema_arrow.equals(target):
                    continue
            written = f"{directory}/{uuid.uuid4().hex}.staged"
            self._rewrite(name, written, schema)
            self._check_current(table, schema)
            self._destination.move(written, name)
            count += 1
        if count:
            self._destination.sync([table])
            self._destination.remove_directory(directory)
            files = format_amount(count, "file")
            _log.info("rewrote %s of table %s to a wider schema", files, table or ".")

    def _check_current(self, table: str, schema: TableSchema) -> None:
        """Raise `Error` if another driver has meanwhile evolved the table further."""
        record = self._store.read(table)
        if record is None or record.schema != schema:
            raise self._overtaken(table)

    def _overtaken(self, table: str) -> Error:
        return Error(
            f"another process has changed the schema of {table!r} in {self._destination.path}",
            "run each pipeline in one process at a time",
        )

    def _rewrite(self, name: str, new_name: str, schema: TableSchema) -> None:
        """Write the rows of a file to another one in a wider schema, and sync it."""
        target = schema.arrow
        with (
            self._open(name) as file,
            self._destination.create(new_name) as stream,
            pq.ParquetWriter(stream, target, compression=self._compression) as writer,
        ):
            lost = set(file.schema_arrow.names).difference(target.names)
            if lost:
                raise Error(
                    f"{name} in {self._destination.path} has a column {min(lost)!r}, which the"
                    " schema of its table lacks",
                    "move the file to another directory",
                )
            for number in range(file.num_row_groups):
                writer.write_table(fit_table(file.read_row_group(number), schema))
        self._destination.sync([new_name])

    def _file_types(self, name: str) -> Mapping[str, ValueType]:
        with self._open(name) as file:
            return types_of_file(file)

    @contextmanager
    def _open(self, name: str) -> Iterator[pq.ParquetFile]:
        with self._destination.open(name) as stream:
            try:
                file = pq.ParquetFile(stream)
            except pa.ArrowInvalid as error:
                raise Error(
                    f"{name} in {self._destination.path} is not a Parquet file: {error}",
                    "restore the file, or move it to another directory",
                ) from None
            yield file


def _widened(
    targets: Mapping[str, TableSchema],
    known: Mapping[str, TableSchema],
    moves: Iterable[FileMove],
) -> dict[str, TableSchema] | None:
    """Return the schemas widened by those of some files; None if one cannot be."""
    widened = dict(targets)
    for move in moves:
        if move.table is not None:
            wider = widened[move.table].widened(move.schema or known[move.table])
            if wider is None:
                return None
            widened[move.table] = wider
    return widened
