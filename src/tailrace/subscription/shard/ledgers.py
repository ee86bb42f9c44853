"""The ledgers of a shard: of all its partitions in MQ, RQ and DLQ.

An acknowledgement belongs to a transaction, often together with an append. Before that transaction
is stored the acknowledgement is in no ledger that anything is decided by. So each partition has two
progresses: `stored`, which decisions use, and another that has the acknowledgements of the one
commit that is under way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tailrace.backend.contract import TableKey
from tailrace.delivery.fetched import FetchedBatch
from tailrace.message import Partition
from tailrace.topic.ledger import Progress


class Ledgers:
    """The progress in each partition of a shard. For one thread at a time."""

    def __init__(self, stored: Mapping[Partition, Progress]) -> None:
        self.stored = dict(stored)
        self._staged = {partition: progress.copy() for partition, progress in stored.items()}

    def add(self, stored: Mapping[Partition, Progress]) -> None:
        """Add the progress in partitions that the shard has from now on."""
        for partition, progress in stored.items():
            if partition not in self.stored:
                self.stored[partition] = progress
                self._staged[partition] = progress.copy()

    def stage(
        self, acks: Mapping[Partition, Iterable[tuple[int, int]]]
    ) -> dict[TableKey, bytes | None]:
        """Return the entries that store acknowledgements: first offsets, and those after the last.

        If the commit fails, the next one has to have these acknowledgements too.
        """
        entries: dict[TableKey, bytes | None] = {}
        for partition, ranges in acks.items():
            progress = self._staged[partition]
            for first, after in ranges:
                progress.ack(first, after)
            entries |= progress.writes()
        return entries

    def saved(self, acks: Mapping[Partition, Iterable[tuple[int, int]]]) -> None:
        """Record that the commit with these acknowledgements is stored."""
        for partition, ranges in acks.items():
            self._staged[partition].saved()
            progress = self.stored[partition]
            for first, after in ranges:
                progress.ack(first, after)

    def unresolved(self, partition: Partition, offsets: Iterable[int]) -> set[int]:
        """Return those offsets that are acknowledged neither by the ledger nor by the commit that
        is under way."""
        progress = self._staged[partition]
        mark = progress.mark
        if progress.highest < mark:  # Nothing above the mark, as usual: no search for each offset.
            return {offset for offset in offsets if offset >= mark}
        return {offset for offset in offsets if not progress.acked(offset)}

    def unacknowledged(self, batch: FetchedBatch) -> Sequence[int]:
        """Return the rows of a batch whose records are not acknowledged."""
        progress = self.stored[batch.partition]
        if progress.highest < batch.start:
            return range(len(batch))
        rows: list[int] = []
        for start, end in progress.holes(batch.next_offset, batch.start):
            first = bisect_left(batch.offsets, start)
            rows += range(first, bisect_left(batch.offsets, end, first))
        return rows


def gaps(batch: FetchedBatch) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a batch that have no record."""
    at = batch.start
    if len(batch) == batch.next_offset - at:
        return
    for offset in batch.offsets:
        if offset > at:
            yield at, offset
        at = offset + 1
    if at < batch.next_offset:
        yield at, batch.next_offset
