"""Parquet: each row becomes an object, its values as JSON has them.

Decimals become text, bytes base64, times RFC 3339 with microseconds, and what is no number ``NaN``,
``Infinity`` or ``-Infinity``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from tailrace.readers.columns import documents
from tailrace.readers.files import OpenFile, Unreadable
from tailrace.readers.lines import BadLine, Ending, Piece
from tailrace.readers.place import Place

_ROWS: Final = 8192
"""How many rows are read at a time."""

_encode = msgspec.json.Encoder().encode


class Parquet:
    """A file that is read once it is whole. Its rows are counted from 1, in place of lines."""

    grows = False

    def __init__(self, identity: tuple[str, ...]) -> None:
        self._identity = identity
        self._ahead: _Ahead | None = None

    def read(self, file: OpenFile, place: Place, limit: int | None, ending: Ending) -> Piece | None:
        """The rows behind a place; see `Format.read`."""
        info = file.info(place.path)
        written = info.size, info.modified_ns
        if place.offset and written != (place.size, place.modified_ns):
            raise Unreadable("it was written to while it was read")
        if self._ahead is None or self._ahead.file is not file or self._ahead.row != place.offset:
            self._ahead = _Ahead(file, place.offset)
        try:
            batch = self._ahead.next_batch()
        except (pa.ArrowException, OSError) as error:
            self._ahead = None
            raise Unreadable(f"it is not Parquet: {error}") from error
        behind = msgspec.structs.replace(place, size=written[0], modified_ns=written[1])
        if batch is None:
            self._ahead = None
            return None if behind == place else self._piece([], behind)
        rows = place.offset + batch.num_rows
        return self._piece(_rows(batch), msgspec.structs.replace(behind, offset=rows, line=rows))

    def _piece(self, rows: list[dict[str, Any]], behind: Place) -> Piece:
        first = behind.line - len(rows) + 1
        values: list[bytes] = []
        identities: list[bytes] = []
        bad: list[BadLine] = []
        for number, row in enumerate(rows, first):
            value = _encode(row)
            if missing := [name for name in self._identity if name not in row]:
                error = f"it has no {', '.join(missing)}, part of its identity"
                bad.append(BadLine(number, error, value))
                continue
            values.append(value)
            if self._identity:
                identities.append(_encode([row[name] for name in self._identity]))
        return Piece(documents(values), identities if self._identity else None, bad, behind)


class _Ahead:
    """The batches of a file from a row on, and the row that comes next."""

    def __init__(self, file: OpenFile, row: int) -> None:
        self.file = file
        self.row = row
        self._batches = _batches_from(file, row)

    def next_batch(self) -> pa.RecordBatch | None:
        """The next one; None at the end."""
        batch = next(self._batches, None)
        self.row += batch.num_rows if batch is not None else 0
        return batch


def _batches_from(file: OpenFile, offset: int) -> Iterator[pa.RecordBatch]:
    # Here, because it takes long to load and most files are not Parquet.
    from pyarrow.parquet import ParquetFile

    with open(file.descriptor, "rb", closefd=False) as raw, ParquetFile(raw) as parquet:
        counts = [
            parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)
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
    """A value as JSON has it; what msgspec writes rightly stays as it is."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, tuple):  # an entry of a map
        return [_json(item) for item in value]
    return value
