"""Many records at once: Arrow columns to the bytes of a log and back.

`encode` and `decode` choose between the plain loop of `tailrace.log.record` and the arrays of
`tailrace.log.column_codec`, which write and read the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import InvalidValue
from tailrace.log.column_codec import (
    are_chained,
    decode_columns,
    encode_columns,
    records_column,
    refuse_nulls,
)
from tailrace.log.record import (
    MODES,
    OPS,
    Buffer,
    DamagedRecord,
    Encoded,
    Positions,
    Record,
    batch_too_large,
    decode_records,
    encode_records,
    scan_positions,
)
from tailrace.log.schema import (
    HEADERS,
    NO_CODES,
    NO_OFFSETS,
    SCHEMA,
    TIMESTAMP,
    from_records,
    records_of,
    zeros,
)

__all__ = [
    "FEW",
    "HEADERS",
    "SCHEMA",
    "checked_positions",
    "decode",
    "decode_pieces",
    "encode",
    "from_records",
    "normalise",
    "records_of",
    "split",
]

Indices: TypeAlias = npt.NDArray[np.int64]

FEW = 256
"""Below this number of records a tuple is faster than columns."""

_FEW_ROWS = 96
"""Below this number of rows the plain loop, with its conversion to records, is faster."""

_BINARY = "binary, large_binary, binary_view, string, large_string, string_view"
_COLUMNS = ("key", "value", "timestamp", "headers", "mode", "op")


def encode(records: tuple[Record, ...] | pa.RecordBatch | Encoded) -> Encoded:
    """Return the bytes of records in any form, by the fastest path. Their offsets are ignored.

    A mode, op, timestamp or header that cannot be encoded, and a null value, are `InvalidValue`;
    more than `BATCH_BYTES_MAX` is `MessageTooLarge`.
    """
    if isinstance(records, Encoded):
        return records
    if isinstance(records, pa.RecordBatch):
        refuse_nulls("value", records["value"])
        few = records.num_rows < _FEW_ROWS
        return encode_records(records_of(records)) if few else encode_columns(records)
    few = len(records) < FEW
    return encode_records(records) if few else encode_columns(from_records(records))


def decode(data: Buffer, positions: Positions | None = None) -> pa.RecordBatch:
    """Return the records of `data`, which must begin and end with whole records; else
    `DamagedRecord`.

    `positions` only save work: unless each leads to the next, they are computed from the bytes.
    """
    if positions is not None and len(positions) >= _FEW_ROWS:
        batch = decode_columns(data, positions)
        if batch is not None:
            return batch
    positions = scan_positions(data)
    batch = decode_columns(data, positions) if len(positions) >= _FEW_ROWS else None
    return from_records(decode_records(data)) if batch is None else batch


def checked_positions(data: Buffer, positions: Positions | None) -> Positions:
    """Return where each record of `data` begins: as given, if each leads to the next, else computed
    from the bytes."""
    if positions is not None and are_chained(data, positions):
        return positions
    return scan_positions(data)


def decode_pieces(
    data: bytes, positions: Positions | None, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `data`, as `decode` returns them, in batches of about `bytes_max`.

    This is faster than decoding all at once, which do not fit into the CPU caches.
    """
    view = memoryview(data)
    walked = positions is None
    starts = scan_positions(view) if positions is None else positions
    first = begin = 0
    while begin < len(view):
        left = len(view) - begin
        aim = begin + left // max(1, round(left / bytes_max))
        after = max(first + 1, int(np.searchsorted(starts, np.uint32(aim))))
        end = int(starts[after]) if after < len(starts) else len(view)
        try:
            if end <= begin:
                raise DamagedRecord(begin, "no position follows this one")
            records = decode(view[begin:end], starts[first:after] - np.uint32(begin))
        except DamagedRecord:
            if walked:
                raise
            # The positions may be wrong. Up to here they were right.
            starts, walked, first = scan_positions(view[begin:]) + np.uint32(begin), True, 0
            continue
        yield records
        first, begin = after, end


def split(
    encoded: Encoded, partitions: npt.NDArray[np.int64], count: int
) -> list[tuple[int, Encoded, Indices]]:
    """Divide records by their partition, which is below `count`, each part in their order.

    A part is its partition, its records in bytes of their own, and their indices. No part is empty.
    Encoding all at once and then splitting is several times faster than encoding many small parts.
    """
    order, bounds = _by_partition(partitions, count)
    ordered = records_column(encoded).take(order)
    _, offset_buffer, data_buffer = cast("list[Any]", ordered.buffers())
    data = memoryview(data_buffer).cast("B")
    offsets = np.frombuffer(offset_buffer, np.uint32, len(order) + 1)
    timestamps = encoded.timestamps[order]
    parts: list[tuple[int, Encoded, Indices]] = []
    for partition, start, end in bounds:
        first, last = offsets[start], offsets[end]
        times = timestamps[start:end]
        part = Encoded(
            data[first:last], offsets[start:end] - first, int(times.min()), int(times.max())
        )
        parts.append((partition, part, order[start:end]))
    return parts


def _by_partition(
    partitions: npt.NDArray[np.int64], count: int
) -> tuple[Indices, list[tuple[int, int, int]]]:
    """Return an order that groups the rows by partition, and the bounds of each group."""
    # Numbers of 16 bits are sorted by radix, several times faster than wider numbers.
    order = np.argsort(partitions.astype(np.uint16), kind="stable")
    ends = np.cumsum(np.bincount(partitions, minlength=count)).tolist()
    bounds = zip(range(count), [0, *ends], ends, strict=False)
    return order, [(partition, start, end) for partition, start, end in bounds if start < end]


def normalise(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Return a user's batch in `SCHEMA`, with offsets 0.

    The batch has a column value and may have key, timestamp, headers, mode and op, in any order. A
    row without a timestamp gets `now_ms`. A column of another name or type, and a null that is not
    allowed, is an `InvalidValue` that names it and what is valid.
    """
    names = batch.schema.names
    for name in names:
        if name not in _COLUMNS or names.count(name) > 1:
            raise InvalidValue("a column", name, f"{', '.join(_COLUMNS)}, each once")
    given = dict(zip(names, batch.columns, strict=True))
    if "value" not in given:
        raise InvalidValue("columns", names, f"value, and any of {', '.join(_COLUMNS)}")
    count = batch.num_rows
    value = _as_binary("value", given["value"])
    refuse_nulls("value", value)
    return pa.RecordBatch.from_arrays(
        [
            zeros(count, NO_OFFSETS),
            _as_timestamp(given.get("timestamp"), count, now_ms),
            _as_code("mode", given.get("mode"), count, MODES),
            _as_code("op", given.get("op"), count, OPS),
            _as_binary("key", given.get("key", pa.nulls(count))),
            _as_headers(given.get("headers"), count),
            value,
        ],
        schema=SCHEMA,
    )


def _as_binary(name: str, column: pa.Array[Any]) -> pa.Array[Any]:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (_is_text(kind) or pa.types.is_null(kind)):
        raise InvalidValue(f"the type of column {name!r}", str(column.type), _BINARY)
    try:
        return column.cast(pa.binary())
    except pa.ArrowInvalid as error:  # More bytes than 32-bit offsets can address.
        raise batch_too_large(column.nbytes) from error


def _is_text(kind: pa.DataType) -> bool:
    return str(kind) in _BINARY.split(", ") or pa.types.is_fixed_size_binary(kind)


def _as_timestamp(column: pa.Array[Any] | None, count: int, now_ms: int) -> pa.Array[Any]:
    if column is None or pa.types.is_null(column.type):
        return pa.array(np.full(count, now_ms, np.int64)).view(TIMESTAMP)
    if pa.types.is_int64(column.type):
        column = column.view(pa.timestamp("ms"))
    elif not pa.types.is_timestamp(column.type):
        valid = "timestamp of any unit and zone, int64 milliseconds since 1970 UTC"
        raise InvalidValue("the type of column 'timestamp'", str(column.type), valid)
    try:
        # Only seconds can overflow, and only units finer than milliseconds lose precision.
        column = column.cast(TIMESTAMP, safe=column.type.unit == "s")
    except pa.ArrowInvalid as error:
        raise InvalidValue("column 'timestamp'", str(error), "1970 to 9999") from error
    return column.fill_null(pa.scalar(now_ms, TIMESTAMP)) if column.null_count else column


def _as_code(name: str, column: pa.Array[Any] | None, count: int, valid: str) -> pa.Array[Any]:
    if column is None:
        return zeros(count, NO_CODES)
    if not pa.types.is_integer(column.type):
        raise InvalidValue(f"the type of column {name!r}", str(column.type), "any integer")
    refuse_nulls(name, column)
    try:
        return column.cast(pa.uint8())
    except pa.ArrowInvalid as error:
        raise InvalidValue(f"column {name!r}", str(error), valid) from error


def _as_headers(column: pa.Array[Any] | None, count: int) -> pa.Array[Any]:
    if column is None or pa.types.is_null(column.type):
        return pa.nulls(count, HEADERS)
    kind = column.type
    if not (pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)):
        raise InvalidValue("the type of column 'headers'", str(kind), "map<string, binary>")
    return column.cast(HEADERS)
