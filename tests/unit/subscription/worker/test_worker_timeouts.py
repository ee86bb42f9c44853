"""A call that takes longer than its timeout has failed, and frees its slot."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tailrace import Delivery, Retry
from tailrace.delivery.outcome import OutcomeKind
from tests.support.waiting import until
from tests.support.workers import Calls, Office


def test_a_coroutine_that_takes_too_long_has_failed() -> None:
    office = Office()
    attempts: list[int] = []

    async def handle(delivery: Delivery[Any]) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            await asyncio.Event().wait()

    office.topic.push("a1", key="a")
    with office.subscription.start(handle, timeout="50ms") as worker:
        until(lambda: worker.stats().succeeded == 1)
    assert attempts == [1, 2]


def test_a_call_that_takes_too_long_frees_its_slot_for_other_keys() -> None:
    office, calls, release = Office(), Calls(), threading.Event()
    calls.when("a1", lambda delivery: release.wait(30) if delivery.attempt == 1 else None)
    office.topic.push_many([("a", "a1"), ("b", "b1")])
    with office.subscription.start(calls, concurrency=1, timeout="50ms"):
        until(lambda: "b1" in calls.done)
        assert "a1" not in calls.done
        release.set()


def test_a_key_waits_without_attempts_while_a_call_that_was_given_up_runs() -> None:
    office, calls = Office(retry=Retry(2, first="5ms", max="5ms")), Calls()
    release = threading.Event()
    calls.when("a1", lambda delivery: release.wait(30) if delivery.attempt == 1 else None)
    office.topic.push_many([("a", "a1"), ("a", "a2")])
    with office.subscription.start(calls, timeout="50ms") as worker:
        until(lambda: worker._session.calls.counts[OutcomeKind.LATER] >= 3)
        assert calls.calls == [("a1", 1)]
        assert worker.stats().failed == 1
        release.set()
        until(lambda: "a2" in calls.done)
    assert calls.calls == [("a1", 1), ("a1", 2), ("a2", 1)]
    assert len(office.subscription.dead_letters) == 0
