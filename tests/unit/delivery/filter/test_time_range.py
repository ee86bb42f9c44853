"""A replay delivers the messages of a range of time, and no copies."""

from __future__ import annotations

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.filter.message_filter import MessageFilter
from tailrace.delivery.filter.time_range import TimeRangeFilter
from tailrace.log.columns import from_records
from tailrace.log.record import Record
from tailrace.log.redelivered import REPLAYED
from tailrace.message import Partition

COPY = {REPLAYED: b"one"}


def batch_of(*records: tuple[int, dict[str, bytes] | None]) -> FetchedBatch:
    """Return a batch of records with these times and headers."""
    rows = [
        Record(offset, time_ms, 0, 0, b"k", headers, b"v")
        for offset, (time_ms, headers) in enumerate(records)
    ]
    return FetchedBatch(Partition("jobs", 0, 0), 0, len(rows), from_records(rows))


def test_the_start_belongs_to_the_range_and_the_end_does_not() -> None:
    batch = batch_of((9, None), (10, None), (19, None), (20, None), (11, None))
    kept = TimeRangeFilter(10, 20).matching(batch)
    assert kept.offsets == [1, 2, 4]
    assert (kept.start, kept.next_offset) == (0, 5), "the others are gaps"


def test_a_batch_that_matches_as_a_whole_is_not_copied() -> None:
    batch = batch_of((10, None), (11, {"country": b"IN"}))
    assert TimeRangeFilter(10, 20).matching(batch) is batch


def test_copies_of_replays_do_not_match() -> None:
    batch = batch_of((10, None), (11, COPY), (12, {"country": b"IN"}), (13, COPY))
    assert TimeRangeFilter(10, 20).matching(batch).offsets == [0, 2]


def test_another_filter_must_match_too() -> None:
    india = {"country": b"IN"}
    batch = batch_of((9, india), (10, india), (11, None), (12, india))
    both = TimeRangeFilter(10, 20, MessageFilter("header.country == 'IN'"))
    assert both.matching(batch).offsets == [1, 3]
