"""Finding the offsets of a range of time in all partitions of a topic."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from tailrace.backend.contract import Bounds, Log, OffsetSpan, TimeBounds
from tailrace.errors import InvalidValue, NotRetained
from tailrace.message import Partition
from tailrace.topic.offset_search import storage_topics
from tailrace.topic.view import View


def offsets_between(view: View, start_ms: int, end_ms: int) -> dict[Partition, OffsetSpan]:
    """Return, for every partition of a topic, offsets that hold every message stored so far whose
    timestamp is `start_ms` or later, and before `end_ms`.

    Sure whatever the clocks of the producers were. The spans hold messages of other times too:
    callers check each timestamp. Reads the newest storage topic first, so that messages pushed
    meanwhile are above the spans. Two equal times give empty spans; `InvalidValue` if the start is
    after the end.

    `NotRetained` if the oldest records of a partition were removed, or compaction has dropped some,
    and the range begins before the least timestamp of those that are left, or above which nothing
    was dropped; or if there are none. It is raised for the topic as a whole in the same way if a
    storage topic was deleted. Timestamps of removed records are not stored: if a removed record had
    a greater timestamp than one that is left, a range that holds it can be found without an error.
    Records that are removed after the call raise nothing either. `CorruptBatch` if damage hides the
    least timestamp that is left.
    """
    if start_ms > end_ms:
        raise InvalidValue(
            "the range of time", (start_ms, end_ms), "a start that is not after the end"
        )
    log = view.backend.log
    spans: dict[Partition, OffsetSpan] = {}
    gone: dict[Partition, TimeBounds | None] = {}
    for partitions in storage_topics(view):
        for where, bounds in partitions.items():
            spans[where] = _below(log.offsets_between(where, start_ms, end_ms), bounds)
            if start_ms < end_ms and not _is_whole(log, where):
                gone[where] = _whole_times(log, where)
    late = {where: each for where, each in gone.items() if each is None or start_ms < each.least_ms}
    if late:
        # The one from which on a range is whole in all of them.
        where = max(late, key=lambda each: _least_ms(late[each]))
        raise NotRetained(str(where), start_ms, end_ms, late[where])
    if start_ms < end_ms and view.refresh().definition.deleted:
        left = _times_left(log, spans)
        if left is None or start_ms < left.least_ms:
            raise NotRetained(view.topic, start_ms, end_ms, left)
    return spans


def _times_left(log: Log, partitions: Iterable[Partition]) -> TimeBounds | None:
    """Return the times of the records of some partitions; None if they have no records."""
    found = [times for where in partitions if (times := log.time_bounds(where)) is not None]
    if not found:
        return None
    return TimeBounds(min(each.least_ms for each in found), max(each.greatest_ms for each in found))


def _below(span: OffsetSpan, bounds: Bounds) -> OffsetSpan:
    """Return the part of a span that was stored when the bounds were read."""
    return OffsetSpan(min(span.start, bounds.end), min(span.end, bounds.end))


def _is_whole(log: Log, partition: Partition) -> bool:
    """True if no records of a partition were removed or dropped. Asked after the search, so that a
    removal meanwhile counts."""
    return log.bounds(partition).start == log.whole_from(partition) == 0


def _whole_times(log: Log, partition: Partition) -> TimeBounds | None:
    """Return the times of the part of a partition of which compaction has dropped nothing; None if
    it has no records."""
    times, dropped_below = log.time_bounds(partition), log.whole_from(partition)
    if times is None or not dropped_below:
        return times
    candidates = range(times.least_ms, times.greatest_ms + 1)
    # A span that holds all records up to a time reaches the part once it has one of them.
    reaches = bisect_left(
        candidates,
        True,
        key=lambda time_ms: log.offsets_between(partition, 0, time_ms + 1).end > dropped_below,
    )
    if reaches == len(candidates):
        return None
    return TimeBounds(candidates[reaches], times.greatest_ms)


def _least_ms(times: TimeBounds | None) -> float:
    return float("inf") if times is None else times.least_ms
