"""Records of one read, as a consumer's loop wants them: columns, made Python values when asked for.

A delivery is a chunk and an index. What a loop does not look at is never taken out of Arrow, and
what it looks at is taken out for the whole chunk at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import pyarrow as pa

from tailrace.log.schema import unique
from tailrace.message import Message, Partition

_NO_HEADERS: Final[Mapping[str, bytes]] = {}


class Settling(Protocol):
    """Whoever takes the acknowledgements of a chunk's deliveries. May be called by any thread."""

    def ack(self, offset: int, wait: bool) -> None:
        """It is done; with `wait`, return when that is durable."""

    def nack(self, offset: int, delay_s: float) -> None:
        """It is to come again, not before the delay is over."""


class Chunk:
    """Some records of one partition, in order, that were read from `start` on.

    Before `next_offset` the partition has no others. `owner` and `decode` are given by whoever
    hands out its records.
    """

    __slots__ = (
        "_headers", "_keys", "_modes", "_ops", "_timestamps", "_values", "decode", "next_offset",
        "offsets", "owner", "partition", "record_bytes", "records", "redelivered_below", "start",
    )  # fmt: skip

    def __init__(
        self, partition: Partition, start: int, next_offset: int, records: pa.RecordBatch
    ) -> None:
        self._set(partition, start, next_offset, records["offset"].to_numpy().tolist(), None)
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
        chunk._set(partition, start, next_offset, offsets, keys)
        chunk.records = None
        chunk.record_bytes = 1
        return chunk

    def _set(
        self,
        partition: Partition,
        start: int,
        next_offset: int,
        offsets: list[int],
        keys: list[bytes | None] | None,
    ) -> None:
        self.partition = partition
        self.start = start
        self.next_offset = next_offset
        self.offsets = offsets
        self.redelivered_below = 0
        self.owner: Settling | None = None
        self.decode: Callable[[Message[Any]], Any] | None = None
        self._keys = keys
        self._values: list[bytes] | None = None
        self._timestamps: list[int] | None = None
        self._modes: list[int] | None = None
        self._ops: list[int] | None = None
        self._headers: list[Mapping[str, bytes]] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        if self._keys is None:
            self._keys = self._column("key").to_pylist()
        return self._keys

    @property
    def values(self) -> list[bytes]:
        """The payload of each record."""
        if self._values is None:
            self._values = cast("list[bytes]", self._column("value").to_pylist())
        return self._values

    @property
    def timestamps(self) -> list[int]:
        """The time of each record, in milliseconds since 1970 UTC."""
        if self._timestamps is None:
            self._timestamps = self._column("timestamp").view(pa.int64()).to_numpy().tolist()
        return self._timestamps

    @property
    def modes(self) -> list[int]:
        """The mode of each record, as a number."""
        if self._modes is None:
            self._modes = self._column("mode").to_numpy().tolist()
        return self._modes

    @property
    def ops(self) -> list[int]:
        """The op of each record, as a number."""
        if self._ops is None:
            self._ops = self._column("op").to_numpy().tolist()
        return self._ops

    @property
    def headers(self) -> list[Mapping[str, bytes]]:
        """The headers of each record."""
        if self._headers is None:
            column = self._column("headers")
            if column.null_count == len(self):
                self._headers = [_NO_HEADERS] * len(self)
            else:
                rows = column.to_pylist()
                self._headers = [unique(pairs) if pairs else _NO_HEADERS for pairs in rows]
        return self._headers

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
