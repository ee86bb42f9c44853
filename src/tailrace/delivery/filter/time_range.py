"""The messages of a range of time, for a replay."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.filter.batch_filter import BatchFilter
from tailrace.log.redelivered import replays_of


class TimeRangeFilter:
    """Matches messages whose timestamp is `start_ms` or later, and before `end_ms`, and that match
    another filter too, if there is one.

    A message that a replay has pushed again does not match: it is a copy of one of another time.
    """

    __slots__ = ("_end_ms", "_start_ms", "_too")

    def __init__(self, start_ms: int, end_ms: int, too: BatchFilter | None = None) -> None:
        self._start_ms = start_ms
        self._end_ms = end_ms
        self._too = too

    def matching(self, batch: FetchedBatch) -> FetchedBatch:
        """Return the messages of a batch that match; the same batch if all match."""
        assert batch.records is not None, "a batch of offsets and keys alone"
        times = batch.records["timestamp"].view(pa.int64()).to_numpy()
        mask = (times >= self._start_ms) & (times < self._end_ms)
        replays = replays_of(batch.records["headers"])
        if replays is not None:
            mask &= replays.is_null().to_numpy(zero_copy_only=False)
        kept = batch if mask.all() else batch.select(np.flatnonzero(mask).tolist())
        return kept if self._too is None else self._too.matching(kept)
