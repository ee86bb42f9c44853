"""The number of shards changes while workers run."""

from __future__ import annotations

import threading

import pytest

from tailrace import Busy, InvalidValue
from tailrace.subscription.store.generations.steps import advance
from tests.support.waiting import until
from tests.support.workers import Calls, Office

KEYS = 12


def in_order(calls: Calls, messages: int) -> None:
    """Assert that each key has had its messages in order."""
    for key in range(KEYS):
        mine = [value for value in calls.done if value % KEYS == key]
        assert mine == list(range(key, messages, KEYS))


def push(office: Office, numbers: range) -> None:
    office.topic.push_many([(f"c{number % KEYS}", number) for number in numbers])


def test_workers_continue_with_the_new_shards() -> None:
    office, calls = Office(partitions=12, shards=4), Calls()
    for value in (3, 40, 77):
        calls.fails(value, times=2)
    push(office, range(120))
    with office.subscription.start(calls), office.subscription.start(calls):
        calls.wait_done(20)
        assert office.subscription.change_shards(6, wait="30s")
        push(office, range(120, 240))
        assert office.subscription.change_shards(3, wait="30s")
        push(office, range(240, 360))
        calls.wait_done(360)
        until(lambda: not office.subscription.describe().unattended)
    in_order(calls, 360)
    info = office.subscription.describe()
    assert (info.shards, info.generation, info.backlog.mq, info.backlog.rq) == (3, 2, 0, 0)


def test_a_call_in_flight_ends_and_is_not_called_again() -> None:
    office, calls, begun, go_on = (
        Office(partitions=4),
        Calls(),
        threading.Event(),
        threading.Event(),
    )

    def hold(delivery: object) -> None:
        begun.set()
        assert go_on.wait(30)

    calls.when(0, hold)
    push(office, range(1))
    with office.subscription.start(calls):
        assert begun.wait(30)
        assert not office.subscription.change_shards(2)
        assert office.subscription.definition.change is not None
        go_on.set()
        assert office.subscription.change_shards(2, wait="30s")
        push(office, range(KEYS, 2 * KEYS))
        calls.wait_done(1 + KEYS)
    assert calls.calls.count((0, 1)) == 1


def test_a_scaled_topic_is_read_by_a_new_generation() -> None:
    """8 -> 12 -> 7 partitions: most keys change their shard, while some of them wait in RQ."""
    office, calls = Office(partitions=8, shards=4), Calls()
    for value in range(0, 60, 7):
        calls.fails(value, times=2)
    push(office, range(60))
    with office.subscription.start(calls):
        office.topic.scale(12)
        push(office, range(60, 120))
        office.topic.scale(7, any_count=True)
        push(office, range(120, 180))
        calls.wait_done(180)
    in_order(calls, 180)
    assert office.subscription.definition.opened == 3


def test_a_number_that_is_not_possible_is_refused_and_so_is_a_second_change() -> None:
    office = Office(partitions=12, shards=4)
    with pytest.raises(InvalidValue, match="divides the 12 partitions: 12, 6, 4, 3, 2, 1"):
        office.subscription.plan_shards(5)
    assert office.subscription.plan_shards(5, uneven=True).shards == 5
    push(office, range(12))
    office.topic.scale(24)
    assert not office.subscription.change_shards(24)
    with pytest.raises(Busy):
        office.subscription.change_shards(6)
    assert office.subscription.change_shards(4)
    assert office.subscription.definition.generation == 0


def test_an_owner_that_would_append_to_a_deleted_storage_topic_continues_in_the_next() -> None:
    """A scaling that keeps all shards: the queues continue while a message is being called."""
    office, calls = Office(partitions=4), Calls()
    begun, go_on = threading.Event(), threading.Event()

    def hold(delivery: object) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(30)
            raise RuntimeError

    def deleted() -> bool:
        stored = advance(office.hub.backend, office.subscription.name)
        return stored is not None and bool(stored.rq.definition.deleted)

    calls.when(0, hold)
    office.topic.push(0, key="a")
    with office.subscription.start(calls):
        assert begun.wait(30)
        office.topic.scale(8)
        until(deleted)
        go_on.set()
        calls.wait_done(1)
    assert calls.calls == [(0, 1), (0, 2)]
