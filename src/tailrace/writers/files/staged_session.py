"""A writer session that writes staged files, one set for each contiguous run of offsets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import RowError, Rows
from tailrace.pipeline.writer import RefusedRecord, Staged
from tailrace.writers.bisect_refused import accepted_ranges, find_refused, rows_within
from tailrace.writers.files.destination import Destination
from tailrace.writers.files.table_schema import TableSchema

RUN_ROWS_MAX: Final = 1 << 20
"""Number of rows after which a run ends, which bounds the size of a file and its memory."""

STAGED_SUFFIX: Final = ".staged"
"""Ends the names of files that are not published: readers that search for ``*.parquet`` files in
all directories, as DuckDB and Polars do, must not find them."""


class FileMove(msgspec.Struct, frozen=True, omit_defaults=True):
    """A staged file and its final name: an item of ``files`` in `Staged.data`.

    `schema` is that of the file if it differs from the recorded one of its `table`, until the
    driver has unified all staged files. A plan that an earlier version sealed has no tables.
    """

    source: str
    target: str
    table: str | None = None
    schema: TableSchema | None = None


class FileContent(Protocol):
    """A file that is being written."""

    def add(self, encoded: Any) -> None:
        """Add rows, encoded by `FileEncoder.encode`."""

    def end(self) -> TableSchema | None:
        """Write the rest to the stream, which the caller closes.

        Return the schema of the file if it differs from the recorded one of its table.
        """


class FileEncoder(Protocol):
    """Encodes rows for the files of one session. A *table* is the directory of published files."""

    @property
    def suffix(self) -> str:
        """The suffix of the file names."""

    def encode(self, parts: Sequence[tuple[str, Rows]]) -> list[Any]:
        """Return the rows of each namespace, given with its table, for `FileContent.add`.

        Raises `RowError` to refuse a row; then none of the rows has any effect on later ones.
        """

    def create(self, stream: pa.NativeFile, table: str) -> FileContent:
        """Begin a file of a table on a stream."""


@dataclass(slots=True)
class _StagedFile:
    """A staged file of a run."""

    name: str
    table: str
    stream: pa.NativeFile
    content: FileContent
    schema: TableSchema | None = None


@dataclass(slots=True)
class _StagedRun:
    """A contiguous range of accepted offsets, with one file for each namespace in it."""

    start: int
    end: int
    rows: int = 0
    files: dict[str, _StagedFile] = field(default_factory=dict)


class StagedSession:
    """A `WriterSession` that writes each run of offsets to its own files.

    `stage_as` returns the staged name of a file, from the start of its run and its number there.
    `publish_as` returns the final name, from the offsets of the run and the table. Both return
    names without a suffix. `table_of` returns the table of a namespace.
    """

    def __init__(
        self,
        destination: Destination,
        encoder: FileEncoder,
        *,
        stage_as: Callable[[int, int], str],
        publish_as: Callable[[Offsets, str], str],
        table_of: Callable[[str], str],
    ) -> None:
        self._destination = destination
        self._encoder = encoder
        self._stage_as = stage_as
        self._publish_as = publish_as
        self._table_of = table_of
        self._run: _StagedRun | None = None
        self._staged: list[Staged] = []
        self._failed: Exception | None = None

    def applied(self) -> Sequence[Offsets]:
        """Return nothing: the driver knows what is published, and staged files do not count."""
        return ()

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[RefusedRecord]:
        """Stage the rows; return the records that the format refuses."""
        try:
            encoded = self._encode(rows)
        except RowError:
            refused = find_refused(rows, self._encode_again)
            for accepted in accepted_ranges(offsets, refused):
                self._add(self._encode_again(rows_within(rows, accepted)), accepted)
            return refused
        self._add(encoded, offsets)
        return ()

    def finish(self) -> Sequence[Staged]:
        """Close and sync the files; return what is staged, run by run."""
        if self._failed is not None:
            raise self._failed
        self._end_run()
        return self._staged

    def close(self) -> None:
        """Close all files, and remove those of a run that did not end."""
        run, self._run = self._run, None
        for file in run.files.values() if run else ():
            with contextlib.suppress(OSError):
                file.stream.close()
            with contextlib.suppress(OSError):
                self._destination.remove(file.name)

    def _encode(self, rows: Rows) -> list[tuple[str, int, Any]]:
        found = list(_by_namespace(rows))
        parts = [(self._table_of(namespace), part) for namespace, part in found]
        encoded = self._encoder.encode(parts)
        return [
            (namespace, len(part), each)
            for (namespace, part), each in zip(found, encoded, strict=True)
        ]

    def _encode_again(self, rows: Rows) -> list[tuple[str, int, Any]]:
        """Encode some rows of a batch of which others are refused, without any effect of these."""
        return self._encode(rows.untyped())

    def _add(self, encoded: list[tuple[str, int, Any]], offsets: Offsets) -> None:
        try:
            run = self._run_at(offsets.start)
            for namespace, count, part in encoded:
                if namespace not in run.files:
                    run.files[namespace] = self._file(run, self._table_of(namespace))
                run.files[namespace].content.add(part)
                run.rows += count
            run.end = offsets.end
        except Exception as error:
            # The files may contain part of the batch, so they cannot be used.
            self._failed = error
            raise

    def _run_at(self, offset: int) -> _StagedRun:
        run = self._run
        if run is None or run.end != offset or run.rows >= RUN_ROWS_MAX:
            self._end_run()
            run = self._run = _StagedRun(offset, offset)
        return run

    def _file(self, run: _StagedRun, table: str) -> _StagedFile:
        name = self._stage_as(run.start, len(run.files) + 1) + self._encoder.suffix + STAGED_SUFFIX
        stream = self._destination.create(name)
        return _StagedFile(name, table, stream, self._encoder.create(stream, table))

    def _end_run(self) -> None:
        run = self._run
        if run is not None and run.files:
            for file in run.files.values():
                file.schema = file.content.end()
                file.stream.close()
            names = [file.name for file in run.files.values()]
            self._destination.sync([*names, *{name.rpartition("/")[0] for name in names}])
            moves = msgspec.to_builtins(list(self._moves(run)))
            self._staged.append(Staged(Offsets(run.start, run.end), run.rows, {"files": moves}))
        self._run = None

    def _moves(self, run: _StagedRun) -> Iterator[FileMove]:
        count = len(run.files)
        for number, file in enumerate(run.files.values(), 1):
            target = self._publish_as(Offsets(run.start, run.end), file.table)
            part = f".{number}-of-{count}" if count > 1 else ""
            target = target + part + self._encoder.suffix
            yield FileMove(file.name, target, file.table, file.schema)


def _by_namespace(rows: Rows) -> Iterator[tuple[str, Rows]]:
    if not len(rows):
        return
    keys = rows.records["key"].fill_null(b"").dictionary_encode()
    distinct: list[Any] = keys.dictionary.to_pylist()
    names = [key.decode("utf-8", "backslashreplace") for key in distinct]
    if len(names) == 1:
        yield names[0], rows
        return
    numbers = keys.indices.to_numpy()
    for number, name in enumerate(names):
        yield name, rows.take(np.flatnonzero(numbers == number))
