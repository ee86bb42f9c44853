"""Of two workers with one id, the newer one works."""

from __future__ import annotations

import threading

import pytest

from tailrace import Delivery, Fenced
from tests.support.topics import all_messages
from tests.support.waiting import until
from tests.support.workers import Calls, Office


def test_a_newer_worker_of_the_same_id_gets_all_shards_and_the_idle_older_one_ends() -> None:
    office, calls = Office(partitions=4), Calls()
    older = office.subscription.start(calls, id="billing")
    until(lambda: len(older.stats().shards) == 4)
    with office.subscription.start(calls, id="billing") as newer:
        with pytest.raises(Fenced):
            older.wait(30)
        until(lambda: len(newer.stats().shards) == 4, within_s=30)
        office.topic.push_many([(f"k{number}", number) for number in range(40)])
        calls.wait_done(40)
    assert sorted(calls.done) == list(range(40))
    older.close()


def test_the_older_worker_stores_nothing_of_a_call_that_ends_after_the_claim() -> None:
    office, calls, go = Office(), Calls(), threading.Event()
    office.hub.create_topic("done", partitions=1)

    def slow(delivery: Delivery[int]) -> None:
        delivery.tx.push("done", "older")
        go.wait(30)

    office.topic.push(1, key="a")
    older = office.subscription.start(slow, id="billing", guarantee="exactly-once")
    until(lambda: older.stats().in_flight)
    with office.subscription.start(calls, id="billing", guarantee="exactly-once"):
        go.set()
        calls.wait_done(1)
        with pytest.raises(Fenced):
            older.wait(30)
    older.close()
    assert all_messages(office.hub.topic("done")) == []


def test_workers_of_other_ids_work_on() -> None:
    office, calls = Office(partitions=4), Calls()
    with (
        office.subscription.start(calls, id="one") as one,
        office.subscription.start(calls, id="two") as two,
    ):
        until(lambda: len(one.stats().shards) == len(two.stats().shards) == 2)
        with office.subscription.start(calls, id="two") as newer:
            with pytest.raises(Fenced):
                two.wait(30)
            until(lambda: len(newer.stats().shards) == 2, within_s=30)
            until(lambda: len(one.stats().shards) == 2, within_s=30)
            assert not one.wait(0.01)


def test_an_id_can_be_used_again_after_its_worker_has_left() -> None:
    office, calls = Office(), Calls()
    for number in range(3):
        with office.subscription.start(calls, id="billing"):
            office.topic.push(number, key="a")
            calls.wait_done(number + 1)
    assert calls.done == [0, 1, 2]
