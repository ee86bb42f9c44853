"""A worker ends in an orderly way, or when what it works for is gone."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tailrace import Delivery, HubClosed, Reject, UnknownSubscription
from tests.support.waiting import until
from tests.support.workers import Calls, Office


def test_a_worker_that_ends_waits_for_its_calls() -> None:
    office, calls, begun, release = Office(), Calls(), threading.Event(), threading.Event()

    def act(delivery: Delivery[Any]) -> None:
        begun.set()
        assert release.wait(30)

    calls.when("a1", act)
    office.topic.push_many([("a", "a1"), ("a", "a2")])
    worker = office.subscription.start(calls)
    assert begun.wait(30)
    threading.Timer(0.05, release.set).start()
    assert worker.close()
    assert calls.done == ["a1"]
    with office.subscription.start(calls):
        calls.wait_done(2)
    assert calls.calls == [("a1", 1), ("a2", 1)]


def test_a_call_that_outlives_the_drain_is_redelivered() -> None:
    office, calls, begun, release = Office(), Calls(), threading.Event(), threading.Event()

    def act(delivery: Delivery[Any]) -> None:
        if not begun.is_set():
            begun.set()
            assert release.wait(30)

    calls.when("a1", act)
    office.topic.push("a1", key="a")
    worker = office.subscription.start(calls, drain_timeout="20ms")
    assert begun.wait(30)
    assert not worker.close()
    release.set()
    with office.subscription.start(calls):
        calls.wait_done(2)
    assert [value for value, _ in calls.calls] == ["a1", "a1"]


def test_a_worker_ends_when_its_subscription_is_deleted() -> None:
    office = Office()
    with office.subscription.start(Calls()) as worker:
        office.subscription.delete()
        with pytest.raises(UnknownSubscription, match="mailer"):
            worker.wait(30)


@pytest.mark.parametrize("topic", ["orders", "refunds"])
def test_a_worker_ends_when_another_subscription_has_its_name(topic: str) -> None:
    office, calls = Office(), Calls()
    office.hub.create_topic("refunds", partitions=1)
    with office.subscription.start(calls) as worker:
        until(lambda: worker.stats().shards)
        office.subscription.delete()
        office.hub.create_subscription("mailer", topic=topic, on_dead_letter="continue")
        office.hub.topic(topic).push("a1", key="a")
        with pytest.raises(UnknownSubscription, match="mailer"):
            worker.wait(30)
    assert calls.calls == []


def test_a_worker_of_a_subscription_that_was_created_again_follows_its_settings() -> None:
    office, calls = Office(), Calls()
    office.hub.create_topic("refunds", partitions=1)
    office.subscription.delete()
    office.hub.create_subscription("mailer", topic="refunds", on_dead_letter="continue")
    calls.fails("a1", times=1, error=Reject("no such customer"))
    office.hub.topic("refunds").push_many([("a", "a1"), ("a", "a2")])
    with office.subscription.start(calls):
        calls.wait_done(1)
    assert calls.done == ["a2"]


def test_a_worker_ends_when_its_hub_is_closed() -> None:
    office = Office()
    with office.subscription.start(Calls()) as worker:
        office.hub.close()
        with pytest.raises(HubClosed):
            worker.wait(30)


def test_a_worker_whose_hub_was_closed_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    office, calls = Office(), Calls()
    office.topic.push("a1", key="a")
    worker = office.subscription.start(calls)
    calls.wait_done(1)
    office.hub.close()
    until(lambda: set(threading.enumerate()) <= before)
    assert not worker.close()


def handle_at_once(delivery: Delivery[Any]) -> None:
    pass


async def handle_on_a_loop(delivery: Delivery[Any]) -> None:
    pass


@pytest.mark.parametrize("handler", [handle_at_once, handle_on_a_loop])
def test_a_thread_that_cannot_go_on_ends_the_worker(handler: Any) -> None:
    office = Office()
    with office.subscription.start(handler) as worker:
        session: Any = worker._session
        session.calls.counts = None  # so that no outcome can be recorded
        office.topic.push("a1", key="a")
        with pytest.raises(TypeError):
            worker.wait(30)
