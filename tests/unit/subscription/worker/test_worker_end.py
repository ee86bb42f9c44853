"""A worker that ends stores everything that its calls decided, or tells that it could not."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from tailrace import Delivery, DiskFull
from tailrace.backend.contract import Transaction
from tailrace.subscription.worker import session as session_module
from tests.support.faulty_backend import FaultyBackend
from tests.support.waiting import until
from tests.support.workers import Calls, Office


def test_a_worker_that_ends_stores_its_outcomes_once_the_disk_has_space_again() -> None:
    backend, calls = FaultyBackend(), Calls()
    office = Office(backend=backend)
    full = _full_from_the_call(backend, calls)
    office.topic.push("a1", key="a")
    worker = office.subscription.start(calls)
    calls.wait_done(1)
    # More than the second that a leaving borrower has.
    threading.Timer(1.5, full.clear).start()
    assert worker.close()
    office.topic.push("a2", key="a")
    with office.subscription.start(calls):
        calls.wait_done(2)
    assert [value for value, _ in calls.calls] == ["a1", "a2"]


def test_a_worker_that_ends_tells_that_outcomes_were_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "LEAVE_S", 0.3)
    backend, calls = FaultyBackend(), Calls()
    office = Office(backend=backend)
    full = _full_from_the_call(backend, calls)
    office.topic.push("a1", key="a")
    worker = office.subscription.start(calls)
    calls.wait_done(1)
    assert not worker.close()
    full.clear()
    with office.subscription.start(calls):
        calls.wait_done(2)


def test_a_worker_that_ends_stores_the_outcomes_beside_a_call_that_does_not_end() -> None:
    office, calls, release = Office(), Calls(), threading.Event()
    calls.when("a1", lambda delivery: release.wait(30))
    office.topic.push_many([("a", "a1"), ("b", "b1")])
    worker = office.subscription.start(calls, drain_timeout="20ms")
    until(lambda: len(calls.calls) == 2 and calls.done == ["b1"])
    started = time.monotonic()
    assert not worker.close()
    assert time.monotonic() - started < 5, "as long as for commits that fail"
    release.set()
    with office.subscription.start(calls):
        calls.wait_done(3)
    assert [value for value, _ in calls.calls].count("b1") == 1


def test_whoever_closes_a_worker_waits_for_its_end() -> None:
    office, calls, begun, release = Office(), Calls(), threading.Event(), threading.Event()

    def act(delivery: Delivery[Any]) -> None:
        begun.set()
        assert release.wait(30)

    calls.when("a1", act)
    office.topic.push("a1", key="a")
    worker = office.subscription.start(calls)
    assert begun.wait(30)
    with ThreadPoolExecutor(2) as pool:
        closing = [pool.submit(worker.close) for _ in range(2)]
        assert not wait(closing, 0.2).done
        release.set()
        assert [each.result(30) for each in closing] == [True, True]


def _full_from_the_call(backend: FaultyBackend, calls: Calls) -> threading.Event:
    """Let all commits of workers fail from the call of a1 on, until the event is cleared."""
    full = threading.Event()

    def refuse(transaction: Transaction) -> None:
        if full.is_set() and transaction.fence is not None:
            raise DiskFull("no disk space for the hub")

    backend.before = refuse
    calls.when("a1", lambda delivery: full.set() if len(calls.calls) == 1 else None)
    return full
