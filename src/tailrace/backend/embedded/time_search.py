"""Finding the batches of a time in a partition, by the least and greatest timestamp of each.

Producers set timestamps by their own clocks, so the timestamps of a partition do not rise, and a
bisection would miss records. Every batch entry counts: those in `hub.db` in one query, and those in
index files from both ends of the partition up to a match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.backend.contract import OffsetSpan, TimeBounds
from tailrace.backend.embedded.damage import hidden, missing_file
from tailrace.backend.embedded.lookup import FoldedSegment
from tailrace.log.index import DamagedIndex
from tailrace.log.segment import Segment
from tailrace.message import Partition


@dataclass(frozen=True, slots=True)
class FoldedEntries:
    """The folded entries of a partition, by the rows of `hub.db` at one instant, oldest first.

    `is_named` tells if a file still belongs to the partition. Both searches raise
    `FileNotFoundError` for a file that does not: the segment was compacted meanwhile, and the
    caller reads the rows again.
    """

    partition: Partition
    segments: Sequence[FoldedSegment]
    open: Callable[[FoldedSegment], Segment]
    is_named: Callable[[str], bool]

    def widen(self, live: OffsetSpan | None, start_ms: int, end_ms: int) -> OffsetSpan | None:
        """Return one span over `live` and all folded batches that can have a timestamp from
        `start_ms` up to, not including, `end_ms`; None if there is none.

        Searches only the segments that can make the span wider.
        """
        span = live
        later: Sequence[FoldedSegment] = ()
        for index, segment in enumerate(self.segments):
            if span is not None and segment.base >= span.start:
                later = self.segments[index:]
                break
            if (found := self._search(segment, start_ms, end_ms)) is not None:
                span, later = _over(span, found), self.segments[index + 1 :]
                break
        for segment in reversed(later):
            if span is not None and segment.end_offset <= span.end:
                break
            if (found := self._search(segment, start_ms, end_ms)) is not None:
                return _over(span, found)
        return span

    def time_bounds(self, live: TimeBounds | None) -> TimeBounds | None:
        """Return the least and the greatest timestamp of `live` and all folded batches; None if
        there is none. `CorruptBatch` for a damaged or missing index."""
        times = [] if live is None else [live]
        times += [self._times(segment) for segment in self.segments]
        if not times:
            return None
        least, greatest = zip(*times, strict=True)
        return TimeBounds(min(least), max(greatest))

    def _search(self, row: FoldedSegment, start_ms: int, end_ms: int) -> OffsetSpan | None:
        """Return the offsets of the batches of one segment; all of them if its index is damaged."""
        try:
            found = self.open(row).folded_between(row.index_bytes, start_ms, end_ms)
        except DamagedIndex:
            return OffsetSpan(row.base, row.end_offset)
        except FileNotFoundError as error:
            self._check_named(error)
            return OffsetSpan(row.base, row.end_offset)
        return None if found is None else OffsetSpan(*found)

    def _times(self, row: FoldedSegment) -> TimeBounds:
        segment = self.open(row)
        try:
            return TimeBounds(*segment.folded_times(row.index_bytes))
        except DamagedIndex as damage:
            raise hidden(self.partition, segment, row.base, row.end_offset, damage) from damage
        except FileNotFoundError as error:
            self._check_named(error)
            raise missing_file(self.partition, row.base, row.end_offset - 1, error) from error

    def _check_named(self, error: FileNotFoundError) -> None:
        if not self.is_named(Path(error.filename).name):
            raise error


def _over(span: OffsetSpan | None, other: OffsetSpan) -> OffsetSpan:
    if span is None:
        return other
    return OffsetSpan(min(span.start, other.start), max(span.end, other.end))
