"""Replays in the Python API: with a handler, or pushed again to the queue."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace import Delivery, InvalidValue, Queue, Reject, Replay, ReplayState, UnknownReplay
from tailrace.testing import MemoryBackend
from tests.support.replays import (
    at,
    copies,
    make_queue,
    push_batch,
    push_minutes,
    stored_messages,
    values_by_key,
)
from tests.support.waiting import until
from tests.support.workers import Calls


def consume(queue: Queue[Any], handler: Any) -> None:
    """Handle everything that the live queue has."""
    with queue.tail(handler):
        until(lambda: _quiet(queue))


def _quiet(queue: Queue[Any]) -> bool:
    total = queue.stats().total
    return not (total.ready or total.in_flight or total.retrying)


def done(replay: Replay) -> bool:
    """True if a replay has ended as it should, in time."""
    return replay.wait("60s") and replay.progress().state is ReplayState.DONE


def test_a_handler_gets_the_messages_of_the_range_and_the_queue_is_untouched() -> None:
    _, queue = make_queue()
    push_minutes(queue, range(40))
    before, handler = queue.stats().total, Calls()
    replays: set[str | None] = set()
    handler.when(15, lambda each: replays.add(each.replay))
    with queue.replay(at(10), at(20), handler, id="one") as replay:
        assert done(replay)
    assert sorted(handler.done) == list(range(10, 20))
    assert replays == {"one"}
    assert queue.stats().total == before
    assert (replay.progress().total, replay.progress().done) == (10, 10)


def test_without_a_handler_the_messages_are_pushed_again_once_in_order_per_key() -> None:
    _, queue = make_queue(backend=MemoryBackend(gap_every=2))
    push_batch(queue, range(100))
    with queue.replay(at(20), at(80)) as replay:
        assert done(replay)
    found = copies(queue.topic)
    assert sorted(each.value for each in found) == list(range(20, 80))
    assert {each.replay for each in found} == {replay.id}
    for values in values_by_key((each.key, each.value) for each in found).values():
        assert values == sorted(values)
    assert queue.stats().total.inserted == 160


def test_live_deliveries_of_copies_name_the_replay_also_when_they_are_retried() -> None:
    _, queue = make_queue()
    queue.push(1, key="a", headers={"country": "IN"}, timestamp=at(1))
    with queue.replay(at(0), at(2), id="one") as replay:
        assert done(replay)
    seen: list[tuple[str | None, int, dict[str, bytes]]] = []

    def handle(delivery: Delivery[int]) -> None:
        seen.append((delivery.replay, delivery.attempt, dict(delivery.headers)))
        if delivery.attempt == 1:
            raise RuntimeError("not yet")

    consume(queue, handle)
    shown = {"country": b"IN"}
    assert seen == [(None, 1, shown), (None, 2, shown), ("one", 1, shown), ("one", 2, shown)]
    assert queue.stats().conserved


def test_copies_are_never_replayed() -> None:
    _, queue = make_queue()
    push_minutes(queue, range(10))
    for _ in range(2):
        with queue.replay(0, datetime(2200, 1, 1, tzinfo=UTC)) as replay:
            assert done(replay)
        assert replay.progress().done == 10
    assert len(stored_messages(queue.topic)) == 30


def test_a_replay_has_retries_and_dead_letters_of_its_own() -> None:
    _, queue = make_queue()
    push_minutes(queue, range(10))
    handler = Calls()
    handler.fails(3, 1)
    handler.fails(5, 9, Reject("no such warehouse"))
    with queue.replay(at(0), at(10), handler) as replay:
        assert done(replay)
        assert replay.progress().dead == 1
        assert [letter.message.value for letter in replay.dead_letters.list()] == [5]
        assert len(queue.dead_letters) == 0
        handler.when(5, lambda _: None)
        replay.dead_letters.redeliver(all=True, reason="it is there now")
        assert done(replay)
        assert replay.progress().done == 10
    assert replay.progress().dead == 0
    assert replay.progress().total == 10
    assert replay.job.counts.done == 10


def test_a_replay_that_was_left_is_resumed_where_it_was() -> None:
    _, queue = make_queue()
    push_minutes(queue, range(40))
    first, second = Calls(), Calls()
    first.when(30, lambda _: replay.stop())
    with queue.replay(at(0), at(40), first, concurrency=1) as replay:
        assert not replay.wait("60s")
    with queue.resume_replay(replay.id, second) as resumed:
        assert done(resumed)
    assert sorted(first.done + second.done) == list(range(40))
    assert len(first.done) >= 1
    assert len(second.done) >= 1


def test_two_workers_share_a_replay() -> None:
    _, queue = make_queue()
    push_minutes(queue, range(200))
    one, other = Calls(), Calls()
    with (
        queue.replay(at(0), at(200), one) as replay,
        queue.resume_replay(replay.id, other) as again,
    ):
        assert done(replay)
        assert done(again)
    assert sorted(one.done + other.done) == list(range(200))


def test_a_replay_is_run_in_this_thread() -> None:
    _, queue = make_queue()
    push_minutes(queue, range(10))
    replay = queue.replay(at(0), at(10), Calls())
    replay.close()
    handler = Calls()
    assert queue.find_replay(replay.id).run(handler).state is ReplayState.DONE


def test_a_cancelled_replay_ends_for_everybody() -> None:
    _, queue = make_queue()
    push_minutes(queue, range(40))
    handler = Calls()
    handler.when(20, lambda each: queue.find_replay(str(each.replay)).cancel())
    with queue.replay(at(0), at(40), handler, concurrency=1) as replay:
        assert replay.wait("60s")
    assert replay.progress().state is ReplayState.CANCELLED
    assert not replay.cancel()
    assert len(queue.replays()) == 1


def test_a_replay_is_cancelled_by_the_one_who_works_on_it() -> None:
    _, queue = make_queue()
    push_minutes(queue, range(40))
    begun, over = threading.Event(), threading.Event()

    def handle(_: Delivery[int]) -> None:
        begun.set()
        over.wait(60)

    with queue.replay(at(0), at(40), handle) as replay:
        begun.wait(60)
        assert replay.cancel(), "although a call does not end"
        over.set()
    assert replay.progress().state is ReplayState.CANCELLED
    assert replay.job.counts.done == 0


def test_exactly_once_in_a_replay_pushes_one_output_for_each_message() -> None:
    hub, queue = make_queue()
    out = hub.create_topic("out")
    push_minutes(queue, range(40))

    def handle(delivery: Delivery[int]) -> None:
        delivery.tx.push(out, delivery.value, key=delivery.key)
        if delivery.value % 7 == 0 and delivery.attempt == 1:
            raise RuntimeError("after the push")

    with queue.replay(at(0), at(40), handle, guarantee="exactly-once") as replay:
        assert done(replay)
    assert sorted(each.value for each in stored_messages(out)) == list(range(40))


def test_a_replay_goes_by_the_filter_of_the_queue() -> None:
    _, queue = make_queue()
    for minute in range(10):
        headers = {"country": "IN" if minute % 2 else "US"}
        queue.push(minute, headers=headers, timestamp=at(minute))
    queue.subscription.update(filter="header.country == 'IN'")
    handler = Calls()
    with queue.replay(at(0), at(8), handler) as replay:
        assert done(replay)
    assert sorted(handler.done) == [1, 3, 5, 7]


def test_the_handler_must_be_as_it_was_at_the_creation() -> None:
    _, queue = make_queue()
    push_minutes(queue, range(4))
    with queue.replay(at(0), at(4), Calls(), id="handled"), queue.replay(at(0), at(4), id="copied"):
        pass
    with pytest.raises(InvalidValue, match="created with a handler"):
        queue.resume_replay("handled")
    with pytest.raises(InvalidValue, match="created without a handler"):
        queue.resume_replay("copied", Calls())
    with pytest.raises(InvalidValue, match="without a handler"):
        queue.resume_replay("copied", timeout="1s")
    with pytest.raises(UnknownReplay, match="handled"):
        queue.find_replay("handle")


@pytest.mark.parametrize(
    ("start", "end"),
    [(datetime(2027, 1, 1), None), ("noon", None), (5, 4), (5, "now"), (at(100_000_000), None)],
)
def test_a_range_that_is_none_is_refused(start: Any, end: Any) -> None:
    _, queue = make_queue()
    with pytest.raises(InvalidValue, match=r"start|end"):
        queue.replay(start, end)
