"""How many records lie between offsets. Offsets have gaps, so a distance is not a number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tailrace.backend.contract import Log
from tailrace.backend.embedded.reading import EmbeddedLog
from tailrace.errors import CorruptBatch
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import batches_within


class Amount(NamedTuple):
    """How much there is: records, exactly, and about how many bytes they have."""

    records: int = 0
    bytes: int = 0

    def plus(self, other: Amount) -> Amount:
        """The sum of two."""
        return Amount(self.records + other.records, self.bytes + other.bytes)


def amount_between(log: Log, partition: Partition, start: int, end: int) -> Amount:
    """How much a partition holds from `start` up to, not including, `end`.

    In a hub in a directory it takes a look at the index alone.
    """
    found = Amount()
    if start >= end:
        return found
    if not isinstance(log, EmbeddedLog):
        for batch in batches_within(log, partition, start, end):
            found = found.plus(Amount(batch.num_rows, batch.nbytes))
        return found
    for extent in log.extents(partition, start, end):
        rows = extent.rows
        first = rows["base"].astype(np.int64)
        within = np.minimum(first + rows["records"], end) - np.maximum(first, start)
        within = np.maximum(within, 0)
        size_bytes = (rows["bytes"] * (within / rows["records"])).sum()
        found = found.plus(Amount(int(within.sum()), round(float(size_bytes))))
    return found


def amount_within(log: Log, partition: Partition, ranges: Iterable[tuple[int, int]]) -> Amount:
    """How much a partition holds in these ranges; where its index is damaged, offsets count."""
    start = log.bounds(partition).start
    found = Amount()
    for first, after in ranges:
        try:
            found = found.plus(amount_between(log, partition, max(first, start), after))
        except CorruptBatch:
            found = found.plus(Amount(after - first))
    return found


def amount_left(log: Log, partition: Partition, progress: Progress) -> Amount:
    """How much of a partition is not acknowledged."""
    return amount_within(log, partition, progress.holes(log.bounds(partition).end))
