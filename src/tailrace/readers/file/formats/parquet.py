"""Parquet: each row becomes a JSON object.

Decimals become text, bytes base64, times RFC 3339 with microseconds, and floats that are not finite
``NaN``, ``Infinity`` or ``-Infinity``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import OpenFile, UnreadableFile
from tailrace.readers.file.formats.columns import documents
from tailrace.readers.file.formats.format import BadLine, FileChunk, FileEnd
from tailrace.readers.file.formats.json_values import encode_identity, json_float

_ROWS: Final = 8192
"""Number of rows in one read."""

_encode = msgspec.json.Encoder().encode


class RowGroup(NamedTuple):
    """The number of rows of a row group, and of its bytes without compression."""

    rows: int
    size: int


class ParquetFormat:
    """Files that are read once they are complete. Rows are numbered from 1, like lines.

    Reads up to the row group that ends with the row number `last`; by default, all of them.
    """

    grows = False

    def __init__(self, identity: tuple[str, ...], last: int | None = None) -> None:
        self._identity = identity
        self._last = last
        self._cursor: _BatchCursor | None = None

    def read(
        self, file: OpenFile, position: FilePosition, limit: int | None, end: FileEnd
    ) -> FileChunk | None:
        """Return the rows after a position; see `FileFormat.read`."""
        info = file.info(position.path)
        written = info.size, info.modified_ns
        if position.offset and written != (position.size, position.modified_ns):
            raise UnreadableFile("it was modified while it was read")
        cursor = self._cursor
        if cursor is None or cursor.file is not file or cursor.row != position.offset:
            cursor = self._cursor = _BatchCursor(file, position.offset, self._last)
        try:
            batch = cursor.next_batch()
        except (pa.ArrowException, OSError) as error:
            self._cursor = None
            raise UnreadableFile(f"it is not Parquet: {error}") from error
        after = msgspec.structs.replace(position, size=written[0], modified_ns=written[1])
        if batch is None:
            self._cursor = None
            return None if after == position else self._chunk([], after)
        rows = position.offset + batch.num_rows
        return self._chunk(_rows(batch), msgspec.structs.replace(after, offset=rows, line=rows))

    def _chunk(self, rows: list[dict[str, Any]], after: FilePosition) -> FileChunk:
        first = after.line - len(rows) + 1
        values: list[bytes] = []
        identities: list[bytes] = []
        bad: list[BadLine] = []
        for number, row in enumerate(rows, first):
            value = _encode(row)
            if self._identity:
                try:
                    identities.append(encode_identity(row, self._identity))
                except ValueError as error:
                    bad.append(BadLine(number, str(error), value))
                    continue
            values.append(value)
        return FileChunk(documents(values), identities if self._identity else None, bad, after)


class _BatchCursor:
    """Iterates over the batches of a file; `row` is the number of the next row."""

    def __init__(self, file: OpenFile, row: int, last: int | None) -> None:
        self.file = file
        self.row = row
        self._batches = _batches_from(file, row, last)

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch; None at the end of the file."""
        batch = next(self._batches, None)
        self.row += batch.num_rows if batch is not None else 0
        return batch


def row_groups(file: OpenFile) -> list[RowGroup]:
    """Return the row groups of a file. Raises `UnreadableFile` if it is not Parquet."""
    from pyarrow.parquet import ParquetFile

    try:
        with open(file.descriptor, "rb", closefd=False) as raw, ParquetFile(raw) as parquet:
            groups = map(parquet.metadata.row_group, range(parquet.num_row_groups))
            return [RowGroup(group.num_rows, group.total_byte_size) for group in groups]
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"it is not Parquet: {error}") from error


def _batches_from(file: OpenFile, offset: int, last: int | None) -> Iterator[pa.RecordBatch]:
    # Imported late: the module is slow to load and most files are not Parquet.
    from pyarrow.parquet import ParquetFile

    with open(file.descriptor, "rb", closefd=False) as raw, ParquetFile(raw) as parquet:
        counts = [
            parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)
        ]
        if last is not None:
            counts = [
                count for count, end in zip(counts, accumulate(counts), strict=True) if end <= last
            ]
        first = 0
        while first < len(counts) and offset >= counts[first]:
            offset -= counts[first]
            first += 1
        groups = list(range(first, len(counts)))
        for batch in parquet.iter_batches(_ROWS, row_groups=groups):
            if offset < batch.num_rows:
                yield batch.slice(offset)
            offset = max(0, offset - batch.num_rows)


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = [_column(column) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _column(column: pa.Array[Any]) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    values: list[Any] = column.to_pylist()
    if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
        return list(map(_json, values))
    return values


def _json(value: Any) -> Any:
    """Return a value that msgspec encodes as the JSON we promise."""
    if isinstance(value, float):
        return json_float(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, tuple):  # an entry of a map
        return [_json(item) for item in value]
    return value
