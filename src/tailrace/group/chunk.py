"""Records of one read, as a consumer's loop wants them: columns, made Python values when asked for.

A delivery is a chunk and an index. What a loop does not look at is never taken out of Arrow, and
what it looks at is taken out for the whole chunk at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Final, Protocol, cast

import pyarrow as pa

from tailrace.log.schema import unique
from tailrace.message import Message, Partition

_NO_HEADERS: Final[Mapping[str, bytes]] = {}


class Fate(Enum):
    """What becomes of a delivery by what was said of it."""

    DONE = "acknowledged"
    AGAIN = "given back, to come again"
    FAILED = "given back at its last attempt"


class Settling(Protocol):
    """Whoever takes the acknowledgements of a chunk's deliveries. May be called by any thread."""

    def ack(self, offset: int, wait: bool) -> None:
        """It is done; with `wait`, return when that is durable."""

    def nack(self, offset: int, delay_s: float) -> Fate:
        """It is to come again, not before the delay is over, unless that was its last attempt, or
        it was acknowledged before."""


class Chunk:
    """Some records of one partition, in order, that were read from `start` on.

    Before `next_offset` the partition has no others. `owner` and `decode` are given by whoever
    hands out its records.
    """

    def __init__(
        self, partition: Partition, start: int, next_offset: int, records: pa.RecordBatch
    ) -> None:
        self._set(partition, start, next_offset, _integers(records["offset"]))
        self.records: pa.RecordBatch | None = records
        self.record_bytes = records.nbytes // max(1, records.num_rows)

    @classmethod
    def listed(
        cls,
        partition: Partition,
        start: int,
        next_offset: int,
        offsets: list[int],
        keys: list[bytes | None],
    ) -> Chunk:
        """A chunk whose records have offsets and keys, and nothing else."""
        chunk = cls.__new__(cls)
        chunk._set(partition, start, next_offset, offsets)
        chunk.keys = keys
        chunk.records = None
        chunk.record_bytes = 1
        return chunk

    def _set(self, partition: Partition, start: int, next_offset: int, offsets: list[int]) -> None:
        self.partition = partition
        self.start = start
        self.next_offset = next_offset
        self.offsets = offsets
        self.redelivered_below = 0
        self.owner: Settling | None = None
        self.decode: Callable[[Message[Any]], Any] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        return self._column("key").to_pylist()

    @cached_property
    def values(self) -> list[bytes]:
        """The payload of each record."""
        return cast("list[bytes]", self._column("value").to_pylist())

    @cached_property
    def timestamps(self) -> list[int]:
        """The time of each record, in milliseconds since 1970 UTC."""
        return _integers(self._column("timestamp").view(pa.int64()))

    @cached_property
    def modes(self) -> list[int]:
        """The mode of each record, as a number."""
        return _integers(self._column("mode"))

    @cached_property
    def ops(self) -> list[int]:
        """The op of each record, as a number."""
        return _integers(self._column("op"))

    @cached_property
    def headers(self) -> list[Mapping[str, bytes]]:
        """The headers of each record."""
        column = self._column("headers")
        if column.null_count == len(self):
            return [_NO_HEADERS] * len(self)
        return [unique(pairs) if pairs else _NO_HEADERS for pairs in column.to_pylist()]

    def some(self, indices: Sequence[int]) -> Chunk:
        """Some of its records, in a chunk that holds no memory of the others."""
        offsets = [self.offsets[index] for index in indices]
        if self.records is None:
            keys = [self.keys[index] for index in indices]
            chunk = Chunk.listed(self.partition, self.start, self.next_offset, offsets, keys)
        else:
            records = self.records.take(pa.array(indices, pa.int64()))
            chunk = Chunk(self.partition, self.start, self.next_offset, records)
        chunk.redelivered_below = self.redelivered_below
        chunk.owner = self.owner
        chunk.decode = self.decode
        return chunk

    def _column(self, name: str) -> pa.Array[Any]:
        assert self.records is not None, "a chunk of offsets and keys alone"
        return self.records[name]


def _integers(column: pa.Array[Any]) -> list[int]:
    return cast("list[int]", column.to_numpy().tolist())
