"""The ranges that tasks read: offsets of one partition, and the files that hold them.

The planner of a read opens the hub; a task reads only the files that the plan names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.backend.capabilities import Extent, HasSegments
from tailrace.log.index import ENTRY
from tailrace.message import Partition
from tailrace.spark.admission import Lag

BATCH_ROWS: Final = 10_000
"""The maximum number of rows that are passed to Spark at a time."""


class ReadRange(NamedTuple):
    """Records of one partition from `start` to `end`, without `end`."""

    partition: Partition
    start: int
    end: int
    extents: tuple[Extent, ...]

    @property
    def bytes(self) -> int:
        """The size of the stored batches that hold the range."""
        entries = (np.frombuffer(extent.entries, ENTRY) for extent in self.extents)
        return sum(int(each["bytes"].sum()) for each in entries)


class SegmentSpan(NamedTuple):
    """Offsets of a partition in one segment, and their approximate size in bytes."""

    start: int
    end: int
    bytes: int


def plan_ranges(
    log: HasSegments, lags: Sequence[Lag], tasks_min: int, task_bytes_max: int | None
) -> list[ReadRange]:
    """Return the ranges of all lags, one for each partition.

    A partition is split if there would be fewer than `tasks_min` ranges, or if a range would have
    more than `task_bytes_max` bytes.
    """
    if len(lags) >= tasks_min and task_bytes_max is None:
        return [_range(log, *lag) for lag in lags]
    spans = [_spans(log, lag) for lag in lags]
    sizes = [sum(span.bytes for span in each) for each in spans]
    # The bytes of one task.
    wanted = [] if task_bytes_max is None else [task_bytes_max]
    if len(lags) < tasks_min:
        wanted.append(max(1, sum(sizes) // tasks_min))
    share = min(wanted)
    return [
        _range(log, lag.partition, start, end)
        for lag, size, each in zip(lags, sizes, spans, strict=True)
        for start, end in split_spans(each, max(1, -(-size // share)))
    ]


def _range(log: HasSegments, partition: Partition, start: int, end: int) -> ReadRange:
    return ReadRange(partition, start, end, tuple(log.extents(partition, start, end)))


def _spans(log: HasSegments, lag: Lag) -> list[SegmentSpan]:
    spans = []
    for segment in log.segments(lag.partition):
        start, end = max(segment.base, lag.at), min(segment.end_offset, lag.end)
        if start < end:
            held = segment.end_offset - segment.base
            spans.append(SegmentSpan(start, end, segment.bytes * (end - start) // held))
    return spans


def split_spans(spans: Sequence[SegmentSpan], parts: int) -> list[tuple[int, int]]:
    """Return the spans of a partition as at most `parts` ranges of about the same size in bytes."""
    if not spans:
        return []
    total = sum(span.bytes for span in spans)
    bounds = [spans[0].start]
    seen = 0
    for start, end, size in spans:
        while len(bounds) < parts and len(bounds) * total // parts < seen + size:
            inside = len(bounds) * total // parts - seen
            bounds.append(start + inside * (end - start) // size)
        seen += size
    bounds.append(spans[-1].end)
    return [(one, other) for one, other in pairwise(bounds) if one < other]


def join_ranges(ranges: Sequence[ReadRange], tasks: int) -> list[list[ReadRange]]:
    """Return `tasks` lists of neighbouring ranges, of about the same size in bytes.

    If there are fewer ranges than tasks, each is a list of its own.
    """
    lists: list[list[ReadRange]] = []
    rest = sum(each.bytes for each in ranges)
    held = share = 0
    for number, each in enumerate(ranges):
        more = tasks - len(lists)
        fits = held + each.bytes // 2 <= share and len(ranges) - number > more
        if lists and (more == 0 or fits):
            lists[-1].append(each)
            held += each.bytes
        else:
            lists.append([each])
            share, held = rest // more, each.bytes
        rest -= each.bytes
    return lists


def read_range(wanted: ReadRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order, from the files alone.

    At most `BATCH_ROWS` at a time.
    """
    for extent in wanted.extents:
        for batch in extent.read(wanted.start, wanted.end):
            for first in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(first, BATCH_ROWS)
