"""Many records at once, as Arrow columns: the same bytes as `tailrace.log.record`, without a loop.

Encoding packs the fields before each key into a numpy array and lets Arrow join it to the columns,
row by row; the values of the joined array are the bytes of the log. If all keys have one length and
all values have one length, a record is one packed dtype and nothing is joined. Decoding reads the
fixed fields of all records in one gather, then cuts keys and values out of the bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidValue
from tailrace.log.record import (
    BATCH_BYTES_MAX,
    HEADERS_BIT,
    KEY_TOO_LONG,
    MODE_MAX,
    OP_MAX,
    OVERHEAD_BYTES,
    WRONG_LENGTH,
    WRONG_MODE,
    Buffer,
    DamagedRecord,
    Encoded,
    Positions,
    batch_too_large,
    check_fields,
    encode_records,
    header_block,
    read_header_block,
)
from tailrace.log.schema import HEADERS, SCHEMA, TIMESTAMP, unique

Column: TypeAlias = "pa.Array[Any]"
Raw: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int32]

_HEAD = np.dtype(
    [
        ("offset", ">i8"),
        ("length", ">u4"),
        ("timestamp", ">i8"),
        ("mode", "u1"),
        ("key_length", ">u4"),
    ]
)
_HEAD_BYTES = _HEAD.itemsize
_MEANINGLESS = np.array(
    [bits & 0x60 > 0 or bits & 3 > MODE_MAX or bits >> 2 & 7 > OP_MAX for bits in range(256)]
)
# Built from buffers, because `pa.scalar` would import pandas if it is installed.
_NOTHING = pa.Array.from_buffers(pa.binary(), 1, [None, *[pa.py_buffer(bytes(8))] * 2])[0]
_NULL_IS_EMPTY = pc.JoinOptions("replace", "")


def encode_columns(batch: pa.RecordBatch) -> Encoded:
    """Return the bytes of a batch in `SCHEMA`, which has no null value.

    A mode, op, timestamp or header that cannot be encoded is an `InvalidValue`; more than
    `BATCH_BYTES_MAX` is `MessageTooLarge`.
    """
    count = batch.num_rows
    if count == 0:
        return encode_records(())
    keys, values = batch["key"], batch["value"]
    timestamps = batch["timestamp"].view(pa.int64()).to_numpy()
    first, last = int(timestamps.min()), int(timestamps.max())
    flags = _mode_bytes(batch, first, last)
    blocks = _header_blocks(batch["headers"])
    key_lengths, data_lengths = row_lengths(keys), row_lengths(values)
    if blocks is not None:
        block_lengths = row_lengths(blocks)
        data_lengths = data_lengths + block_lengths
        flags[block_lengths > 0] |= HEADERS_BIT
    size = count * OVERHEAD_BYTES + _total(key_lengths) + _total(data_lengths)
    if size > BATCH_BYTES_MAX:
        raise batch_too_large(size)
    even = blocks is None and _all_equal(key_lengths) and _all_equal(data_lengths)
    whole = even_dtype(int(key_lengths[0]), int(data_lengths[0])) if even else _HEAD
    rows = np.zeros(count, whole)
    rows["length"] = key_lengths + data_lengths + 8
    rows["timestamp"] = timestamps
    rows["mode"] = flags
    rows["key_length"] = key_lengths
    if even:
        rows["data_length"] = data_lengths
        for name in {"key", "value"} & set(rows.dtype.names):
            rows[name] = _contents(batch[name], rows.dtype[name])
        positions = np.arange(0, size, rows.itemsize, dtype=np.uint32)
        return Encoded(rows.view(np.uint8).data, positions, first, last)
    pieces = [_binary(rows, _HEAD_BYTES), keys, _binary(data_lengths.astype(">u4"), 4)]
    pieces += [values] if blocks is None else [blocks, values]
    joined = pc.call_function("binary_join_element_wise", [*pieces, _NOTHING], _NULL_IS_EMPTY)
    _, offsets, data = joined.buffers()
    positions = np.frombuffer(offsets, np.uint32, count)
    return Encoded(memoryview(data).cast("B"), positions, first, last)


def decode_columns(data: Buffer, positions: Positions) -> pa.RecordBatch | None:
    """Return the records at `positions`, one or more; None unless each position leads to the next.

    `DamagedRecord` names a record with an impossible key length, data length or mode byte.
    """
    raw = np.frombuffer(data, np.uint8)
    if len(raw) > BATCH_BYTES_MAX:
        raise batch_too_large(len(raw))
    even = _decode_even(raw, len(positions))
    if even is not None:
        return even
    heads = _chained_heads(raw, positions)
    if heads is None:
        return None
    lengths, key_lengths = (heads[name].astype(np.int64) for name in ("length", "key_length"))
    if (bad := key_lengths + 8 > lengths).any():
        raise _damaged(positions, bad, KEY_TOO_LONG, key_lengths, lengths)
    key_starts = positions.astype(np.int32) + np.int32(_HEAD_BYTES)
    key_ends = key_starts + key_lengths.astype(np.int32)
    data_lengths = _gather(raw, key_ends, 4).view(">u4").astype(np.int64)
    if (bad := lengths != key_lengths + data_lengths + 8).any():
        raise _damaged(positions, bad, WRONG_LENGTH, lengths, key_lengths, data_lengths)
    flags = heads["mode"]
    modes, ops = flags & 3, flags >> 2 & 7
    if (bad := _MEANINGLESS[flags]).any():
        raise _damaged(positions, bad, WRONG_MODE, flags)
    starts = key_ends + np.int32(4)
    ends = starts + data_lengths.astype(np.int32)
    headers, starts = _read_headers(raw, positions, flags, starts, ends)
    keys = _null_where_empty(_cut(raw, key_starts, key_ends), key_lengths)
    return _batch(heads, modes, ops, keys, headers, _cut(raw, starts, ends))


def _decode_even(raw: Raw, count: int) -> pa.RecordBatch | None:
    """Return the records of `raw` if they are `count` records of one length without headers; else
    None."""
    record_bytes, rest = divmod(len(raw), count)
    if rest or record_bytes <= OVERHEAD_BYTES:
        return None
    key_bytes = int.from_bytes(raw[21:_HEAD_BYTES].tobytes())
    value_bytes = record_bytes - OVERHEAD_BYTES - key_bytes
    if value_bytes <= 0:
        return None
    rows = raw.view(even_dtype(key_bytes, value_bytes))
    flags = rows["mode"]
    alike = (
        (rows["length"] == key_bytes + value_bytes + 8).all()
        and (rows["key_length"] == key_bytes).all()
        and (rows["data_length"] == value_bytes).all()
        and not (_MEANINGLESS[flags] | (flags >= HEADERS_BIT)).any()
    )
    if not alike:
        return None
    keys: Column = pa.nulls(count, pa.binary())
    if key_bytes:
        keys = _binary(np.ascontiguousarray(rows["key"]), key_bytes)
    values = _binary(np.ascontiguousarray(rows["value"]), value_bytes)
    return _batch(rows, flags & 3, flags >> 2 & 7, keys, pa.nulls(count, HEADERS), values)


def _batch(
    heads: npt.NDArray[Any],
    modes: npt.NDArray[Any],
    ops: npt.NDArray[Any],
    keys: Column,
    headers: Column,
    values: Column,
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(heads["offset"].astype(np.int64)),
            pa.array(heads["timestamp"].astype(np.int64)).view(TIMESTAMP),
            pa.array(modes),
            pa.array(ops),
            keys,
            headers,
            values,
        ],
        schema=SCHEMA,
    )


def records_column(encoded: Encoded) -> Column:
    """Return a binary column whose rows are whole records, over the same bytes."""
    offsets = np.append(encoded.positions, np.uint32(len(encoded.data)))
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(encoded.data)]
    return pa.Array.from_buffers(pa.binary(), encoded.count, buffers)


def refuse_nulls(name: str, column: Column) -> None:
    """Raise `InvalidValue`, which names the first row in which the column is null."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidValue(f"column {name!r} in row {row}", None, "no nulls")


def _mode_bytes(batch: pa.RecordBatch, first_timestamp: int, last_timestamp: int) -> Raw:
    modes, ops = batch["mode"].to_numpy(), batch["op"].to_numpy()
    check_fields(first_timestamp, int(modes.max()), int(ops.max()))
    check_fields(last_timestamp, 0, 0)
    flags: Raw = modes | ops << 2
    return flags


def _header_blocks(headers: Column) -> Column | None:
    """Return a header block for every row with headers and empty bytes for the rest; None if no row
    has headers."""
    if headers.null_count == len(headers):
        return None
    blocks = [header_block(unique(pairs)) if pairs else b"" for pairs in headers.to_pylist()]
    return pa.array(blocks, pa.binary()) if any(blocks) else None


def _read_headers(
    raw: Raw, positions: Positions, flags: Raw, starts: Ints, ends: Ints
) -> tuple[Column, Ints]:
    """Return the column of headers, and where the payloads start after their blocks."""
    rows = np.flatnonzero(flags & HEADERS_BIT).tolist()
    if not rows:
        return pa.nulls(len(positions), HEADERS), starts
    names: list[str] = []
    values: list[bytes] = []
    counts = np.zeros(len(positions) + 1, np.int32)
    # Numbers of lists are several times faster to use one by one than those of arrays.
    places, begins, limits = positions.tolist(), starts.tolist(), ends.tolist()
    for row in rows:
        headers, begins[row] = read_header_block(raw.data, places[row], begins[row], limits[row])
        if headers:
            names += headers
            values += headers.values()
            counts[row + 1] = len(headers)
    without = np.append(counts[1:] == 0, False)
    offsets = pa.array(counts.cumsum(dtype=np.int32), mask=without)
    column = pa.MapArray.from_arrays(
        offsets, pa.array(names, HEADERS.key_type), pa.array(values, HEADERS.item_type)
    )
    return column.cast(HEADERS), np.array(begins, starts.dtype)


def are_chained(data: Buffer, positions: Positions) -> bool:
    """True if the positions lead from record to record, from the first byte to the last."""
    return (
        len(positions) > 0 and _chained_heads(np.frombuffer(data, np.uint8), positions) is not None
    )


def _chained_heads(raw: Raw, positions: Positions) -> npt.NDArray[Any] | None:
    """Return the fixed fields at all positions, if these lead from the first byte to the last."""
    if positions[0] != 0 or int(positions.max()) + OVERHEAD_BYTES > len(raw):
        return None
    heads = _gather(raw, positions, _HEAD_BYTES).view(_HEAD)
    following = positions + heads["length"].astype(np.int64) + 21
    chained = (following[:-1] == positions[1:]).all() and following[-1] == len(raw)
    return heads if chained else None


def _damaged(
    positions: Positions, bad: npt.NDArray[np.bool_], reason: str, *fields: npt.NDArray[Any]
) -> DamagedRecord:
    row = int(bad.argmax())
    return DamagedRecord(int(positions[row]), reason.format(*(int(field[row]) for field in fields)))


def _gather(raw: Raw, starts: Positions | Ints, item_bytes: int) -> npt.NDArray[np.void]:
    """Return the items of `item_bytes` at `starts`, each within `raw`, one after the other.

    As opaque bytes: numpy copies structured items field by field, six times slower.
    """
    item = f"V{item_bytes}"
    step = int(starts[1]) - int(starts[0]) if len(starts) > 1 else 1
    if step > 0 and (starts[1:] - starts[:-1] == step).all():
        # At equal distances, as records of one length are: copied by strides, several times faster.
        return np.ndarray(len(starts), item, raw, int(starts[0]), (step,)).copy()
    # A view of one item at every byte, so that indices into it are byte positions.
    return np.ndarray(len(raw) - item_bytes + 1, item, raw, strides=(1,))[starts]


def _cut(raw: Raw, starts: Ints, ends: Ints) -> Column:
    """Return a binary column whose row i is `raw[starts[i]:ends[i]]`; rows are in order and do not
    overlap."""
    count, lengths = len(starts), ends - starts
    length = int(lengths[0])
    if length > 0 and _all_equal(lengths):
        return _binary(_gather(raw, starts, length), length)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    buffers = [None, pa.py_buffer(bounds.data), pa.py_buffer(raw.data)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return pieces.take(np.arange(0, 2 * count, 2, dtype=np.int32))


def _null_where_empty(column: Column, lengths: npt.NDArray[np.int64]) -> Column:
    present = lengths > 0
    if present.all():
        return column
    validity = pa.py_buffer(np.packbits(present, bitorder="little").data)
    return pa.Array.from_buffers(pa.binary(), len(column), [validity, *column.buffers()[1:]])


def _binary(items: npt.NDArray[Any], item_bytes: int) -> Column:
    """Return a binary column over the bytes of an array, without a copy."""
    offsets = np.arange(0, (len(items) + 1) * item_bytes, item_bytes, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(items.view(np.uint8).data)]
    return pa.Array.from_buffers(pa.binary(), len(items), buffers)


def row_lengths(column: Column) -> npt.NDArray[np.int32]:
    """Return the number of bytes of each row of a binary column; 0 for null."""
    if column.null_count:
        lengths: Any = pc.call_function("binary_length", [column])
        filled: npt.NDArray[np.int32] = lengths.fill_null(0).to_numpy()
        return filled
    buffers: list[Any] = column.buffers()
    offsets = np.frombuffer(buffers[1], np.int32, len(column) + 1, 4 * column.offset)
    return offsets[1:] - offsets[:-1]


def _total(numbers: npt.NDArray[np.int32]) -> int:
    return int(numbers.sum(dtype=np.int64))


def _all_equal(numbers: npt.NDArray[Any]) -> bool:
    return bool((numbers == numbers[0]).all())


@lru_cache(maxsize=256)
def even_dtype(key_length: int, data_length: int) -> np.dtype[Any]:
    """Return the dtype of a whole record; an empty key or value has no field, as numpy has no empty
    items."""
    key = [("key", f"V{key_length}")] if key_length else []
    value = [("value", f"V{data_length}")] if data_length else []
    return np.dtype([*_HEAD.descr, *key, ("data_length", ">u4"), *value])


def _contents(column: Column, item: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the rows of a binary column that all have the length of `item`, without a copy."""
    buffers: list[Any] = column.buffers()
    _, offsets, data = buffers
    start = int(np.frombuffer(offsets, np.int32, 1, 4 * column.offset)[0])
    return np.frombuffer(data, item, len(column), start)
