"""The records that a shard has read and may still need, up to a bound.

Messages are held back by id alone. The record of one whose turn has come is often still here; if
not, it is read again, together with those after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import Final, NamedTuple

from tailrace.delivery.fetched import FetchedBatch
from tailrace.message import Partition

ROW_BYTES: Final = 200
"""About what the Python values of a record take beside its bytes."""


class RecordRow(NamedTuple):
    """A record: a row of a batch."""

    batch: FetchedBatch
    row: int


class Payloads:
    """The batches that were read last, at most `bytes_max` together. For one thread at a time."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: OrderedDict[tuple[Partition, int], FetchedBatch] = OrderedDict()
        self._starts: dict[Partition, list[int]] = {}

    def add(self, batch: FetchedBatch) -> None:
        """Keep a batch that has records. Those that were used longest ago are forgotten."""
        if not len(batch):
            return
        self._remove((batch.partition, batch.start))
        self._batches[batch.partition, batch.start] = batch
        starts = self._starts.setdefault(batch.partition, [])
        starts.insert(bisect_left(starts, batch.start), batch.start)
        self._bytes += _size(batch)
        while self._bytes > self._bytes_max and len(self._batches) > 1:
            self._remove(next(iter(self._batches)))

    def find(self, partition: Partition, offset: int) -> RecordRow | None:
        """Return the record at an offset, if it is kept."""
        starts = self._starts.get(partition, [])
        at = bisect_left(starts, offset + 1) - 1
        while at >= 0:
            name = partition, starts[at]
            batch = self._batches[name]
            row = bisect_left(batch.offsets, offset)
            if row < len(batch) and batch.offsets[row] == offset:
                self._batches.move_to_end(name)
                return RecordRow(batch, row)
            at -= 1
        return None

    def _remove(self, name: tuple[Partition, int]) -> None:
        batch = self._batches.pop(name, None)
        if batch is not None:
            self._bytes -= _size(batch)
            starts = self._starts[name[0]]
            del starts[bisect_left(starts, name[1])]
            if not starts:
                del self._starts[name[0]]


def _size(batch: FetchedBatch) -> int:
    return len(batch) * (batch.record_bytes + ROW_BYTES)
