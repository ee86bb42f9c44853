"""The partition of a key. Pure arithmetic on a 31-bit hash, for one key or for a column.

The hash is Kafka's: murmur2 of the key's bytes, with the sign bit cleared. So with K = 1 a key goes
to the partition that Kafka's Java client would choose.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from struct import Struct
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import InvalidValue

Hashes: TypeAlias = npt.NDArray[np.int64]
IntOrArray = TypeVar("IntOrArray", int, Hashes)

HASHES = 1 << 31
"""The number of hashes: they are 0 up to, not including, this number."""

NO_KEY = -1
"""The result of `hash_keys` for a row whose key is null or empty: it may go to any partition."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_HASH_BITS = 31
_WORD = Struct("<I")
_FEW = 16
_WORDS_MAX = 0xFFFF


class RouterKind(StrEnum):
    """How a hash becomes a partition; a topic's router is fixed when it is created."""

    SHARD_CONSISTENT = "shard-consistent"
    RANGE = "range"

    @classmethod
    def parse(cls, text: str) -> RouterKind:
        """Return the router of that name; `InvalidValue` lists the names."""
        try:
            return cls(text)
        except ValueError:
            raise InvalidValue("router", text, ", ".join(cls)) from None


def route(kind: RouterKind, h: IntOrArray, partitions: int, k: int) -> IntOrArray:
    """Return the partition of a hash, or of each of an array, in a storage topic of that shape.

    `shard-consistent` keeps the keys of a base partition in the block of `k` that replaced it:
    ``partition // k == h % (partitions // k)``. `range` gives each partition an interval of hashes.
    """
    if kind is RouterKind.RANGE:
        return h * partitions >> _HASH_BITS
    return k * h % partitions + h // partitions % k


def murmur2(key: bytes) -> int:
    """Return Kafka's murmur2 as an unsigned 32-bit number."""
    length = len(key)
    h = _SEED ^ length
    tail = length & ~3
    for (word,) in _WORD.iter_unpack(key[:tail] if tail < length else key):
        word = word * _M & _MASK
        h = (h * _M ^ (word ^ word >> 24) * _M) & _MASK
    if tail < length:
        h = (h ^ int.from_bytes(key[tail:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=65_536)
def hash_key(key: bytes) -> int:
    """Return the 31-bit hash that keys are routed by."""
    return murmur2(key) & 0x7FFFFFFF


def hash_keys(keys: pa.Array[Any]) -> Hashes:
    """Return `hash_key` of every row of a binary column; `NO_KEY` if it is null or empty."""
    count = len(keys)
    buffers: list[Any] = keys.buffers()
    _, offset_buffer, data_buffer = buffers
    if count == 0 or data_buffer is None:
        return np.full(count, NO_KEY, np.int64)
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1, 4 * keys.offset)
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    starts, lengths = offsets[:-1] - offsets[0], offsets[1:] - offsets[:-1]
    if keys.null_count:
        lengths[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    # Four bytes are read wherever a key ends, so the last key needs padding after it.
    data = np.zeros(size + 4, np.uint8)
    data[:size] = np.frombuffer(data_buffer, np.uint8, size, first)
    length = int(lengths[0])
    if length and (lengths == length).all():
        found = _hash_even(data, count, length)
    else:
        found = _hash_rows(data, starts, lengths)
    hashes = found.astype(np.int64) & 0x7FFFFFFF
    hashes[lengths == 0] = NO_KEY
    return hashes


def _hash_even(data: npt.NDArray[np.uint8], count: int, length: int) -> npt.NDArray[np.uint32]:
    """Return `murmur2` of many keys that have the same length and are stored one after the
    other."""
    m = np.uint32(_M)
    h = np.full(count, _SEED ^ length, np.uint32)
    for start in range(0, length - 3, 4):
        word = np.ndarray(count, "<u4", data, start, (length,)) * m
        word ^= word >> 24
        h = h * m ^ word * m
    tail = length & 3
    if tail:
        word = np.ndarray(count, "<u4", data, length - tail, (length,))
        h = (h ^ word & np.uint32((1 << 8 * tail) - 1)) * m
    return _finished(h)


def _finished(h: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    h ^= h >> 13
    h *= np.uint32(_M)
    h ^= h >> 15
    return h


def _hash_rows(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]
) -> npt.NDArray[np.uint32]:
    """Return `murmur2` of many keys, word by word.

    The rows with the most words come first, so that the rows with another word are a prefix. When
    these are few, or their words very many, the plain loop takes over.
    """
    # Numbers of 16 bits are sorted by radix, several times faster than wider numbers.
    words = np.minimum(lengths >> 2, _WORDS_MAX).astype(np.uint16)
    order = np.argsort(_WORDS_MAX - words, kind="stable")
    starts, lengths, words = starts[order], lengths[order], words[order]
    at = np.ndarray(len(data) - 3, "<u4", data, strides=(1,))
    m = np.uint32(_M)
    h = lengths.astype(np.uint32) ^ np.uint32(_SEED)
    active = 0
    for index, ended in enumerate(np.cumsum(np.bincount(words)[:_WORDS_MAX]).tolist()):
        active = len(words) - ended
        if active < _FEW:
            break
        word = at[starts[:active] + 4 * index] * m
        word ^= word >> 24
        h[:active] = h[:active] * m ^ word * m
    tail_bits = (lengths & 3).astype(np.uint32) << 3
    tails = at[starts + (lengths & ~3)] & ((np.uint32(1) << tail_bits) - np.uint32(1))
    np.multiply(h ^ tails, m, out=h, where=tail_bits > 0)
    h = _finished(h)
    for row in range(active):
        h[row] = murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    hashes = np.empty_like(h)
    hashes[order] = h
    return hashes
