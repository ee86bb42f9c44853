"""How many records lie between offsets. Offsets have gaps, so a distance is not a number."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tailrace.backend.contract import Log
from tailrace.backend.embedded.reading import EmbeddedLog
from tailrace.errors import CorruptBatch
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import batches_within


def records_between(log: Log, partition: Partition, start: int, end: int) -> int:
    """How many records a partition holds from `start` up to, not including, `end`.

    In a hub in a directory it takes a look at the index alone.
    """
    if start >= end:
        return 0
    if not isinstance(log, EmbeddedLog):
        return sum(batch.num_rows for batch in batches_within(log, partition, start, end))
    count = 0
    for extent in log.extents(partition, start, end):
        first = extent.rows["base"].astype(np.int64)
        after = first + extent.rows["records"]
        within = np.minimum(after, end) - np.maximum(first, start)
        count += int(np.maximum(within, 0).sum())
    return count


def records_within(log: Log, partition: Partition, ranges: Iterable[tuple[int, int]]) -> int:
    """How many records a partition holds in these ranges; where its index is damaged, offsets
    count."""
    listed = list(ranges)
    start = log.bounds(partition).start
    clipped = [(max(first, start), after) for first, after in listed if after > start]
    try:
        return sum(records_between(log, partition, first, after) for first, after in clipped)
    except CorruptBatch:
        return sum(after - first for first, after in clipped)


def records_left(log: Log, partition: Partition, progress: Progress) -> int:
    """How many records of a partition are not acknowledged."""
    end = log.bounds(partition).end
    return records_within(log, partition, progress.holes(end))
