"""The position in a batch whose rows are delivered one after the other.

Two row numbers describe it: the rows before `delivered` were delivered, and the rows before `acked`
are acknowledged, or were set aside. The loop that delivers moves both.
"""

from __future__ import annotations

from bisect import bisect_left

from tailrace.delivery.cursor_progress import CursorProgress
from tailrace.delivery.fetched import DeliveryCounts, FetchedBatch, FetchedRow
from tailrace.message import Partition


class BatchCursor:
    """The position of a unit in the batch that was fetched last. For one thread at a time."""

    def __init__(self, partition: Partition, progress: CursorProgress) -> None:
        self.partition = partition
        self.batch = _empty_batch(partition, progress.mark)
        self.delivered = 0
        """Rows of `batch` before this one were delivered, or set aside."""
        self.acked = 0
        """Rows of `batch` before this one are acknowledged, or set aside."""
        self._progress = progress
        self._recorded = progress.mark
        self._counts = DeliveryCounts(0, 0, 0)
        self._counted = 0, 0

    @property
    def read_from(self) -> int:
        """The offset at which the next batch has to start."""
        return self.batch.next_offset

    @property
    def ahead_bytes(self) -> int:
        """The approximate size of the rows that were not delivered yet."""
        return (len(self.batch) - self.delivered) * self.batch.record_bytes

    def _begin(self, batch: FetchedBatch) -> None:
        """Continue with another batch, without the records that were acknowledged earlier."""
        self.batch = self._progress.without_acked(batch)
        self.batch.redelivered_below = self._progress.redelivered_below
        self._recorded = batch.start
        self._move_to(0)

    def _forget(self, next_offset: int) -> None:
        """Free the memory of the batch. The next one starts at an offset."""
        self.batch = _empty_batch(self.partition, next_offset)
        self._recorded = next_offset
        self._move_to(0)

    def _move_to(self, row: int) -> None:
        """Continue at a row of the batch. The caller accounts for the rows before it."""
        self.delivered = self.acked = row
        self._counted = row, row

    def _record_rows(self) -> None:
        """Record in the progress and in the counts how far the two row numbers moved."""
        delivered, acked, batch = self.delivered, self.acked, self.batch
        up_to = batch.next_offset if acked == len(batch) else self._floor(acked)
        if up_to > self._recorded:
            self._progress.ack(self._recorded, up_to)
            self._recorded = up_to
        first = self._counted[0]
        again = self._redelivered(first, delivered)
        self._count(delivered - first, acked - self._counted[1], 0, again)
        self._counted = delivered, acked

    def _set_aside(self, row: int) -> None:
        """Continue after the row at `acked`. The caller acknowledges it, and the gap before it."""
        self._record_rows()
        self._recorded = self.batch.offsets[row] + 1
        self._move_to(row + 1)

    def _redelivered(self, first: int, end: int) -> int:
        """Return how many of these rows may have been delivered before, by an earlier owner."""
        batch = self.batch
        if first == end or batch.offsets[first] >= batch.redelivered_below:
            return 0
        return bisect_left(batch.offsets, batch.redelivered_below, first, end) - first

    def _count(self, delivered: int, acknowledged: int, nacked: int, redelivered: int = 0) -> None:
        counts = self._counts
        self._counts = DeliveryCounts(
            counts[0] + delivered,
            counts[1] + acknowledged,
            counts[2] + nacked,
            counts[3] + redelivered,
        )

    def _count_row(self, row: FetchedRow) -> FetchedRow:
        """Count the delivery of one record, and return it."""
        self._count(1, 0, 0, int(row.redelivered))
        return row

    def _is_in_flight(self, offset: int) -> bool:
        """True if the row that was delivered last has this offset and is not acknowledged."""
        return self.delivered > self.acked and self.batch.offsets[self.delivered - 1] == offset

    def _offset_at(self, row: int) -> int:
        batch = self.batch
        return batch.offsets[row] if row < len(batch) else batch.next_offset

    def _floor(self, row: int) -> int:
        """Return the offset after the record before this row."""
        return self.batch.offsets[row - 1] + 1 if row else self.batch.start


def _empty_batch(partition: Partition, at: int) -> FetchedBatch:
    return FetchedBatch.listed(partition, at, at, [], [])
