"""Calls that do not end: a worker bears some of them, and then it fails."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tailrace import Delivery, Error, Hub
from tailrace.subscription.worker.runners import loop_calls
from tests.support.waiting import until
from tests.support.workers import Office

TOO_MANY = "subscription mailer: [34] calls of its handler take longer than 0.05 s and do not end"


class Hangs:
    """A handler whose calls do not end before the test ends."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.calls: list[Any] = []

    def function(self, delivery: Delivery[Any]) -> None:
        self.calls.append(delivery.value)
        self.release.wait(60)

    async def coroutine(self, delivery: Delivery[Any]) -> None:
        self.calls.append(delivery.value)
        while not self.release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)


@pytest.fixture(params=["function", "coroutine"])
def hangs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(loop_calls, "GRACE_S", 0.05)
    hangs = Hangs()
    yield hangs, getattr(hangs, request.param)
    hangs.release.set()


def test_a_worker_fails_when_more_calls_hang_than_it_has_slots(
    hangs: tuple[Hangs, Callable[..., Any]],
) -> None:
    office = Office()
    office.topic.push_many([(f"c{number}", number) for number in range(9)])
    with office.subscription.start(hangs[1], concurrency=2, timeout="50ms") as worker:
        with pytest.raises(Error, match=TOO_MANY):
            worker.wait(30)
        assert not worker.close()
    assert len(hangs[0].calls) <= 4


def test_a_worker_bears_as_many_hung_calls_as_it_has_slots(
    hangs: tuple[Hangs, Callable[..., Any]],
) -> None:
    office = Office()
    office.topic.push_many([("a", 1), ("b", 2)])
    with office.subscription.start(hangs[1], concurrency=2, timeout="50ms") as worker:
        until(lambda: worker.stats().failed == 2)
        assert not worker.wait(0.2)
        hangs[0].release.set()
        until(lambda: worker.stats().succeeded == 2)


def test_a_pause_is_quiet_only_after_the_calls_that_were_given_up(
    hangs: tuple[Hangs, Callable[..., Any]],
) -> None:
    office = Office()
    hub: Hub = office.hub
    queue = hub.queue("jobs", int)
    queue.push(1, key="a")
    with queue.tail(hangs[1], timeout="50ms") as consumer:
        until(lambda: consumer.stats().failed >= 1)
        assert not queue.pause(drain=True, timeout="300ms"), "the call still runs"
        hangs[0].release.set()
        assert queue.pause(drain=True, timeout="30s")
