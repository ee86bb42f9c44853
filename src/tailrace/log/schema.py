"""Records as Arrow columns: their schema, and the conversion from and to single records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.errors import InvalidValue
from tailrace.log.record import Record, check_fields, check_headers

TIMESTAMP = pa.timestamp("ms", "UTC")
HEADERS = pa.map_(pa.string(), pa.binary())
_FIELDS: list[pa.Field[Any]] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", TIMESTAMP, nullable=False),
    pa.field("mode", pa.uint8(), nullable=False),
    pa.field("op", pa.uint8(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("headers", HEADERS),
    pa.field("value", pa.binary(), nullable=False),
]
SCHEMA = pa.schema(_FIELDS)
"""The columns of records. A missing key and missing headers are null; a value never is."""

_ZEROS = pa.py_buffer(bytes(8 << 16))
# Built from a buffer: if pandas is installed, `pa.array` would import it, in every process.
NO_OFFSETS: pa.Array[Any] = pa.Array.from_buffers(pa.int64(), 1 << 16, [None, _ZEROS])
NO_CODES: pa.Array[Any] = pa.Array.from_buffers(pa.uint8(), 1 << 16, [None, _ZEROS])


def import_pandas_now() -> None:
    """Let Arrow search for pandas now, and import it if it is installed.

    Arrow otherwise does so when it first creates an array of Python values. That fails while a
    program ends, and a child that was forked during the import waits for it for ever.
    """
    pa.array([])


def from_records(records: Sequence[Record]) -> pa.RecordBatch:
    """Return records as a batch in `SCHEMA`. A field too large for its column is `InvalidValue`."""
    if not records:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    offsets, timestamps, modes, ops, keys, headers, values = zip(*records, strict=True)
    try:
        numbers = [
            pa.array(np.fromiter(column, kind, len(records)))
            for column, kind in (
                (offsets, np.int64),
                (timestamps, np.int64),
                (modes, np.uint8),
                (ops, np.uint8),
            )
        ]
    except OverflowError:
        for record in records:
            check_fields(record.timestamp, record.mode, record.op)
        raise
    return pa.RecordBatch.from_arrays(
        [
            numbers[0],
            numbers[1].view(TIMESTAMP),
            numbers[2],
            numbers[3],
            pa.array(keys, pa.binary()),
            _headers_column(headers),
            pa.array(values, pa.binary()),
        ],
        schema=SCHEMA,
    )


def from_messages(
    timestamps: Sequence[int],
    keys: Sequence[bytes],
    values: Sequence[bytes],
    headers: Sequence[Mapping[str, bytes] | None] = (),
) -> pa.RecordBatch:
    """Return messages as a batch in `SCHEMA`; without `headers`, no message has any."""
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            zeros(count, NO_OFFSETS),
            pa.array(np.fromiter(timestamps, np.int64, count)).view(TIMESTAMP),
            zeros(count, NO_CODES),
            zeros(count, NO_CODES),
            pa.array(keys, pa.binary()),
            _headers_column(headers) if headers else pa.nulls(count, HEADERS),
            pa.array(values, pa.binary()),
        ],
        schema=SCHEMA,
    )


def zeros(count: int, kept: pa.Array[Any]) -> pa.Array[Any]:
    """Return `count` zeros of the type of `kept`: a slice of it if it is long enough."""
    return kept.slice(0, count) if count <= len(kept) else pa.array(np.zeros(count), kept.type)


def _headers_column(headers: Sequence[Mapping[str, bytes] | None]) -> pa.Array[Any]:
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    return pa.array([_pairs(block) for block in headers], HEADERS)


def _pairs(headers: Mapping[str, bytes] | None) -> list[tuple[str, bytes]] | None:
    if not headers:
        return None
    check_headers(headers)
    return list(headers.items())


def records_of(batch: pa.RecordBatch) -> list[Record]:
    """Return the rows of a batch in `SCHEMA` as records."""
    headers: list[dict[str, bytes] | None] = [None] * batch.num_rows
    if batch["headers"].null_count < batch.num_rows:
        headers = [unique(pairs) if pairs else None for pairs in batch["headers"].to_pylist()]
    rows = zip(
        batch["offset"].to_numpy().tolist(),
        batch["timestamp"].view(pa.int64()).to_numpy().tolist(),
        batch["mode"].to_numpy().tolist(),
        batch["op"].to_numpy().tolist(),
        batch["key"].to_pylist(),
        headers,
        batch["value"].to_pylist(),
        strict=True,
    )
    return list(map(partial(tuple.__new__, Record), rows))


def unique(pairs: list[tuple[str, bytes]]) -> dict[str, bytes]:
    """Return the headers of a row; `InvalidValue` if a name occurs twice."""
    headers = dict(pairs)
    if len(headers) < len(pairs):
        raise InvalidValue("headers", [name for name, _ in pairs], "each name once")
    return headers
