"""Where in a partition a moment lies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from tailrace.backend.contract import Bounds, Log
from tailrace.message import Partition
from tailrace.topic.reading import batches_within

_PROBE_BYTES: Final = 1


def parse_moment(text: str) -> int | None:
    """Milliseconds since 1970 of an ISO 8601 time, in UTC unless it says otherwise, or None."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def offset_at_time(log: Log, partition: Partition, bounds: Bounds, time_ms: int) -> int:
    """The first offset of this time or a later one, or the end.

    By bisection: a partition's times are taken to rise, as they do unless producers set them.
    """
    low, high = bounds.start, bounds.end
    while low < high:
        middle = (low + high) // 2
        first = first_between(log, partition, middle, high)
        if first is None or first["timestamp"].view(pa.int64())[0].as_py() >= time_ms:
            high = middle
        else:
            low = int(first["offset"][0].as_py()) + 1
    return low


def first_between(log: Log, partition: Partition, start: int, end: int) -> pa.RecordBatch | None:
    """The first record from `start` on, before `end`, in a batch with some that follow."""
    return next(batches_within(log, partition, start, end, _PROBE_BYTES), None)


def end_before(log: Log, partition: Partition, start: int, high: int) -> int:
    """The offset after the last record below `high`, or `start`; found by bisection."""
    low = start
    while low < high:
        middle = (low + high) // 2
        first = first_between(log, partition, middle, high)
        if first is None:
            high = middle
        else:
            low = int(first["offset"][0].as_py()) + 1
    return low
