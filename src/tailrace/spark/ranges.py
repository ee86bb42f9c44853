"""What one task reads: a range of one stream, with where its bytes are.

Whoever plans a read has the hub open; whoever reads has only the files that the plan names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa

from tailrace.backend.embedded.extents import Extent, read_extent
from tailrace.backend.embedded.reading import EmbeddedLog
from tailrace.message import Partition
from tailrace.spark.admission import Lag

BATCH_ROWS: Final = 10_000
"""So many rows go to Spark at a time."""


class Range(NamedTuple):
    """Records of one stream from `start` up to, not including, `end`."""

    partition: Partition
    start: int
    end: int
    extents: tuple[Extent, ...]


class Span(NamedTuple):
    """Offsets of a stream in one segment, and about how many bytes they have."""

    start: int
    end: int
    bytes: int


def plan(
    log: EmbeddedLog, lags: Sequence[Lag], tasks_min: int, task_bytes_max: int | None
) -> list[Range]:
    """Ranges for all that waits: one for a stream, more where there would be fewer than
    `tasks_min` or one would have more than `task_bytes_max`."""
    if len(lags) >= tasks_min and task_bytes_max is None:
        return [_range(log, *lag) for lag in lags]
    spans = [_spans(log, lag) for lag in lags]
    sizes = [sum(span.bytes for span in each) for each in spans]
    # What one task may have.
    wanted = [] if task_bytes_max is None else [task_bytes_max]
    if len(lags) < tasks_min:
        wanted.append(max(1, sum(sizes) // tasks_min))
    share = min(wanted)
    return [
        _range(log, lag.partition, start, end)
        for lag, size, each in zip(lags, sizes, spans, strict=True)
        for start, end in cut(each, max(1, -(-size // share)))
    ]


def _range(log: EmbeddedLog, partition: Partition, start: int, end: int) -> Range:
    return Range(partition, start, end, tuple(log.extents(partition, start, end)))


def _spans(log: EmbeddedLog, lag: Lag) -> list[Span]:
    spans = []
    for segment in log.segments(lag.partition):
        start, end = max(segment.base, lag.at), min(segment.end_offset, lag.end)
        if start < end:
            held = segment.end_offset - segment.base
            spans.append(Span(start, end, segment.bytes * (end - start) // held))
    return spans


def cut(spans: Sequence[Span], parts: int) -> list[tuple[int, int]]:
    """The spans of a stream as so many ranges of about the same bytes; fewer if they are short."""
    if not spans:
        return []
    total = sum(span.bytes for span in spans)
    edges = [spans[0].start]
    seen = 0
    for start, end, size in spans:
        while len(edges) < parts and len(edges) * total // parts < seen + size:
            inside = len(edges) * total // parts - seen
            edges.append(start + inside * (end - start) // size)
        seen += size
    edges.append(spans[-1].end)
    return [(one, other) for one, other in pairwise(edges) if one < other]


def read_range(asked: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order, by the files alone; at most `BATCH_ROWS` at a time."""
    for extent in asked.extents:
        for batch in read_extent(extent, asked.start, asked.end):
            for first in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(first, BATCH_ROWS)
