"""The same records for every contender, built before the clock starts."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TIMESTAMP_MS = 1_750_000_000_000
KEY_BYTES = 8
CUSTOMERS = 2_000
_HEAD = struct.Struct(">qIqBI")
_LENGTH = struct.Struct(">I")
_SEED = 7


@cache
def columns(count: int, value_bytes: int) -> pa.RecordBatch:
    """Return a batch of keyed records of one length."""
    return _batch(np.full(count, value_bytes, np.int32))


@cache
def uneven_columns(count: int, value_bytes: int) -> pa.RecordBatch:
    """Return a batch of keyed records of half to one and a half times a length."""
    generator = np.random.default_rng(_SEED)
    return _batch(generator.integers(value_bytes // 2, value_bytes * 3 // 2, count, np.int32))


@cache
def pairs(count: int, value_bytes: int) -> list[tuple[bytes, bytes]]:
    """Return keys and values as Python objects."""
    generator = random.Random(_SEED)
    customers = _customers()
    return [(generator.choice(customers), generator.randbytes(value_bytes)) for _ in range(count)]


def struct_records(messages: list[tuple[bytes, bytes]], base: int) -> Iterator[bytes]:
    """Encode messages in the record format by a plain loop."""
    pack_head, pack_length = _HEAD.pack, _LENGTH.pack
    for offset, (key, value) in enumerate(messages, base):
        key_length, length = len(key), len(value)
        head = pack_head(offset, key_length + length + 8, TIMESTAMP_MS, 0, key_length)
        yield head + key + pack_length(length) + value


def struct_tuples(data: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Decode offset, timestamp, key and value of records by a plain loop."""
    unpack_head, unpack_length = _HEAD.unpack_from, _LENGTH.unpack_from
    position, size = 0, len(data)
    while position < size:
        offset, length, timestamp, _, key_length = unpack_head(data, position)
        key_end = position + 25 + key_length
        (value_length,) = unpack_length(data, key_end)
        position += 21 + length
        value = data[key_end + 4 : key_end + 4 + value_length]
        yield offset, timestamp, data[key_end - key_length : key_end], value


@cache
def log_bytes(count: int, value_bytes: int) -> bytes:
    """Return the records of `pairs` as the bytes of a log."""
    return b"".join(struct_records(pairs(count, value_bytes), 0))


def _customers() -> list[bytes]:
    return [f"c{number:07d}".encode() for number in range(CUSTOMERS)]


def _batch(lengths: npt.NDArray[np.int32]) -> pa.RecordBatch:
    generator = np.random.default_rng(_SEED)
    values = generator.integers(0, 256, int(lengths.sum()), np.uint8)
    keys = generator.choice(np.array(_customers(), f"S{KEY_BYTES}"), len(lengths))
    key_lengths = np.full(len(lengths), KEY_BYTES, np.int32)
    arrays = [_binary(keys.view(np.uint8), key_lengths), _binary(values, lengths)]
    return pa.RecordBatch.from_arrays(arrays, names=["key", "value"])


def _binary(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int32]) -> pa.Array[Any]:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
