"""The records of one read, as columns. Python values are made when they are used.

A delivery is a batch and a row number. A column that no consumer uses is never converted from
Arrow, and a column that is used is converted for the whole batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.redelivered import replay_in, shown_headers, with_shown_headers
from tailrace.log.schema import unique
from tailrace.message import Message, Partition

_NO_HEADERS: Final[Mapping[str, bytes]] = {}


class Resolution(Enum):
    """The result of an ack or a nack."""

    ACKED = "acknowledged"
    NACKED = "not acknowledged: to be redelivered"
    FAILED = "not acknowledged at its last attempt"


class Resolver(Protocol):
    """Accepts the acks and nacks of a batch's deliveries. May be called by any thread."""

    def ack(self, offset: int, wait: bool) -> None:
        """Acknowledge a record. With `wait`, return once the acknowledgement is durable."""

    def nack(self, offset: int, delay_s: float, reason: str) -> Resolution:
        """Schedule the redelivery of a record after the delay. People read the reason.

        `FAILED` if that was its last attempt, `ACKED` if it was acknowledged before.
        """

    def reject(self, offset: int, reason: str) -> Resolution:
        """Have a record fail at once, as after its last attempt. People read the reason.

        `FAILED`, `NACKED` if another owner has the record by now, `ACKED` if it was acknowledged
        before.
        """


class FetchedBatch:
    """Some records of one partition, in order, that were read from the offset `start`.

    The partition has no other records before `next_offset`. The session that delivers the records
    sets `resolver` and `decode`, `replay` to the replay that delivers them, if one does, and
    `reset` to the number of the offset reset after which they were read, 0 before the first.
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
    ) -> FetchedBatch:
        """Make a batch whose records have offsets and keys, and no other columns."""
        batch = cls.__new__(cls)
        batch._set(partition, start, next_offset, offsets)
        batch.keys = keys
        batch.records = None
        batch.record_bytes = 1
        return batch

    def _set(self, partition: Partition, start: int, next_offset: int, offsets: list[int]) -> None:
        self.partition = partition
        self.start = start
        self.next_offset = next_offset
        self.offsets = offsets
        self.redelivered_below = 0
        self.resolver: Resolver | None = None
        self.decode: Callable[[Message[Any]], Any] | None = None
        self.replay: str | None = None
        self.reset = 0

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
        """The headers of each record that users see."""
        return [shown_headers(each) if each else each for each in self.stored_headers]

    @cached_property
    def stored_headers(self) -> list[Mapping[str, bytes]]:
        """All headers of each record."""
        column = self._column("headers")
        if column.null_count == len(self):
            return [_NO_HEADERS] * len(self)
        return [unique(pairs) if pairs else _NO_HEADERS for pairs in column.to_pylist()]

    def stored_headers_of(self, row: int) -> Mapping[str, bytes]:
        """Return all headers of one record, without converting those of the others."""
        if "stored_headers" in self.__dict__:
            return self.stored_headers[row]
        pairs = self._column("headers")[row].as_py()
        return unique(pairs) if pairs else _NO_HEADERS

    def headers_of(self, row: int) -> Mapping[str, bytes]:
        """Return the headers of one record that users see."""
        return shown_headers(self.stored_headers_of(row))

    @cached_property
    def shown_records(self) -> pa.RecordBatch:
        """The records with the headers that users see."""
        assert self.records is not None, "a batch of offsets and keys alone"
        return with_shown_headers(self.records)

    def rows_of(self, keys: Sequence[bytes], first: int) -> list[int]:
        """Return the rows from `first` that have one of these keys, in order."""
        if self.records is None:
            wanted = set(keys)
            return [row for row in range(first, len(self)) if self.keys[row] in wanted]
        found = pc.is_in(self._column("key").slice(first), value_set=pa.array(keys, pa.binary()))
        rows = np.flatnonzero(found.to_numpy(zero_copy_only=False)) + first
        return rows.tolist()

    def select(self, rows: Sequence[int]) -> FetchedBatch:
        """Return some of the records, in a batch that keeps no memory of the others."""
        offsets = [self.offsets[row] for row in rows]
        if self.records is None:
            keys = [self.keys[row] for row in rows]
            batch = FetchedBatch.listed(self.partition, self.start, self.next_offset, offsets, keys)
        else:
            records = self.records.take(pa.array(rows, pa.int64()))
            batch = FetchedBatch(self.partition, self.start, self.next_offset, records)
        batch.redelivered_below = self.redelivered_below
        batch.resolver = self.resolver
        batch.decode = self.decode
        batch.replay = self.replay
        batch.reset = self.reset
        return batch

    def replay_of(self, row: int) -> str | None:
        """Return the replay that delivers a record, or that has pushed it again; None if neither
        is the case."""
        return self.replay or replay_in(self.stored_headers[row])

    def _column(self, name: str) -> pa.Array[Any]:
        assert self.records is not None, "a batch of offsets and keys alone"
        return self.records[name]


class FetchedRow(NamedTuple):
    """A record to deliver: a row of a batch, and the number of the attempt."""

    batch: FetchedBatch
    row: int
    attempt: int

    @property
    def offset(self) -> int:
        """The offset of the record."""
        return self.batch.offsets[self.row]

    @property
    def redelivered(self) -> bool:
        """True if the record may have been delivered before: here, or by an owner that crashed."""
        return self.attempt > 1 or self.offset < self.batch.redelivered_below


class DeliveryCounts(NamedTuple):
    """The number of deliveries, acknowledgements and nacks.

    `redelivered` are the deliveries of records that may have been delivered before.
    """

    delivered: int
    acknowledged: int
    nacked: int
    redelivered: int = 0


def _integers(column: pa.Array[Any]) -> list[int]:
    return cast("list[int]", column.to_numpy().tolist())
