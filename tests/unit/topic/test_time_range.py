"""The offsets of a range of time, in every partition of a topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.backend.contract import Bounds, OffsetSpan, StorageTopic, Transaction
from tailrace.errors import InvalidValue, NotRetained, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.columns import records_of
from tailrace.message import Partition, Range
from tailrace.topic.reading import batches_within
from tailrace.topic.time_range import offsets_between
from tests.support.faulty_backend import FaultyBackend
from tests.support.records import record
from tests.support.topics import Order

FIRST, SECOND = Partition("orders", 0, 0), Partition("orders", 0, 1)
HOUR_MS = 3_600_000
ALL_MS = 10**13


def put(topic: Topic[Order], where: Partition, *times_ms: int) -> Range:
    """Store one batch with these timestamps in a partition."""
    rows = tuple(record(b"{}", timestamp=time_ms) for time_ms in times_ms)
    (landed,) = topic.view.backend.commit(Transaction(((where, rows),)))
    return landed


def times_within(topic: Topic[Order], start_ms: int, end_ms: int) -> list[int]:
    """The timestamps in the range, read from the spans only."""
    found: list[int] = []
    for where, span in offsets_between(topic.view, start_ms, end_ms).items():
        for batch in batches_within(topic.view.backend.log, where, *span):
            found += [row.timestamp for row in records_of(batch)]
    return sorted(time_ms for time_ms in found if start_ms <= time_ms < end_ms)


def is_empty(span: OffsetSpan) -> bool:
    return span.start == span.end


def test_every_partition_of_every_storage_topic_has_a_span(orders: Topic[Order]) -> None:
    put(orders, FIRST, 100)
    orders.scale(8)
    put(orders, Partition("orders", 1, 7), 50, 300)
    spans = offsets_between(orders.view, 0, ALL_MS)
    assert len(spans) == 4 + 8
    assert sorted(where for where, span in spans.items() if not is_empty(span)) == [
        FIRST,
        Partition("orders", 1, 7),
    ]
    assert times_within(orders, 0, ALL_MS) == [50, 100, 300]
    assert times_within(orders, 100, 300) == [100]


def test_messages_of_a_clock_that_is_an_hour_behind_are_found(orders: Topic[Order]) -> None:
    for minute in range(10):
        time_ms = 10 * HOUR_MS + minute
        put(orders, FIRST, time_ms)
        put(orders, FIRST, time_ms - HOUR_MS)
    assert times_within(orders, 9 * HOUR_MS, 9 * HOUR_MS + 10) == [
        9 * HOUR_MS + minute for minute in range(10)
    ]
    assert times_within(orders, 10 * HOUR_MS + 4, 10 * HOUR_MS + 6) == [
        10 * HOUR_MS + 4,
        10 * HOUR_MS + 5,
    ]


def test_a_span_ends_at_its_batches(orders: Topic[Order]) -> None:
    put(orders, FIRST, 100)
    middle = put(orders, FIRST, 300, 200)
    put(orders, FIRST, 400)
    span = offsets_between(orders.view, 200, 400)[FIRST]
    assert span == (middle.start, middle.end)


def test_equal_times_give_empty_spans(orders: Topic[Order]) -> None:
    put(orders, FIRST, 100, 300)
    assert all(map(is_empty, offsets_between(orders.view, 200, 200).values()))


def test_a_start_after_the_end_is_refused(orders: Topic[Order]) -> None:
    with pytest.raises(InvalidValue, match="not after the end"):
        offsets_between(orders.view, 201, 200)


def test_a_deleted_topic_is_unknown(hub: Hub, orders: Topic[Order]) -> None:
    hub.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        offsets_between(orders.view, 0, 1)


def after_bounds_of(
    monkeypatch: pytest.MonkeyPatch, backend: FaultyBackend, action: Callable[[int], None]
) -> None:
    """Call `action` with the number of each storage topic whose bounds were just read."""
    bounds_of = backend.log.bounds_of

    def act(storage: StorageTopic) -> list[Bounds]:
        found = bounds_of(storage)
        action(storage.storage)
        return found

    monkeypatch.setattr(backend.log, "bounds_of", act)


def test_messages_stored_meanwhile_are_above_the_spans(
    orders: Topic[Order], backend: FaultyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = put(orders, FIRST, 100)
    end = backend.log.bounds(FIRST).end

    def push(_storage: int) -> None:
        put(orders, FIRST, 100)
        put(orders, SECOND, 100)

    after_bounds_of(monkeypatch, backend, push)
    spans = offsets_between(orders.view, 0, 200)
    assert spans[FIRST].start == before.start
    assert before.end <= spans[FIRST].end <= end
    assert is_empty(spans[SECOND])


def test_the_newest_storage_topic_is_read_first(
    orders: Topic[Order], backend: FaultyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.scale(8)
    orders.scale(12)
    read: list[int] = []
    after_bounds_of(monkeypatch, backend, read.append)
    offsets_between(orders.view, 0, 200)
    assert read == [2, 1, 0]


def test_a_range_that_begins_before_the_retained_times_is_refused(
    orders: Topic[Order], backend: FaultyBackend
) -> None:
    gone = put(orders, FIRST, 100, 200)
    put(orders, FIRST, 320, 300)
    put(orders, FIRST, 400)
    put(orders, SECOND, 50)
    backend.log.remove_before(FIRST, gone.end)
    with pytest.raises(NotRetained) as caught:
        offsets_between(orders.view, 299, 500)
    error = caught.value
    assert (error.where, error.start_ms, error.end_ms) == ("orders/0.0", 299, 500)
    assert error.retained == (300, 400)
    assert times_within(orders, 300, 500) == [300, 320, 400]
    assert all(map(is_empty, offsets_between(orders.view, 100, 100).values()))


def test_the_refusal_names_the_time_from_which_all_partitions_are_whole(
    orders: Topic[Order], backend: FaultyBackend
) -> None:
    for where, left_ms in ((FIRST, 300), (SECOND, 700)):
        gone = put(orders, where, 100)
        put(orders, where, left_ms)
        backend.log.remove_before(where, gone.end)
    with pytest.raises(NotRetained) as caught:
        offsets_between(orders.view, 0, 1000)
    assert caught.value.where == "orders/0.1"
    assert caught.value.retained == (700, 700)
    assert times_within(orders, 700, 1000) == [700]


def test_a_partition_of_which_nothing_is_left_is_refused(
    orders: Topic[Order], backend: FaultyBackend
) -> None:
    gone = put(orders, FIRST, 100)
    backend.log.remove_before(FIRST, gone.end)
    with pytest.raises(NotRetained, match="no records"):
        offsets_between(orders.view, 50, 200)


def test_records_removed_during_the_search_are_noticed(
    orders: Topic[Order], backend: FaultyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = put(orders, FIRST, 100)
    put(orders, FIRST, 300)
    after_bounds_of(monkeypatch, backend, lambda _: backend.log.remove_before(FIRST, gone.end))
    with pytest.raises(NotRetained):
        offsets_between(orders.view, 0, 500)
