"""The number of records between offsets. Offsets have gaps, so a distance is not a count."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.backend.contract import Amount, Log
from tailrace.errors import CorruptBatch
from tailrace.message import Partition
from tailrace.topic.ledger import Progress


def amount_within(log: Log, partition: Partition, ranges: Iterable[tuple[int, int]]) -> Amount:
    """Count the records of a partition in ranges of offsets.

    In a range whose index is damaged, count the offsets instead.
    """
    start = log.bounds(partition).start
    found = Amount()
    for first, after in ranges:
        try:
            found = found.plus(log.amount(partition, max(first, start), after))
        except CorruptBatch:
            found = found.plus(Amount(after - first))
    return found


def amount_left(log: Log, partition: Partition, progress: Progress) -> Amount:
    """Count the records of a partition that are not acknowledged."""
    return amount_within(log, partition, progress.holes(log.bounds(partition).end))
