"""The commits of the shards of a worker are stored side by side: they share a sync."""

from __future__ import annotations

import threading

from tailrace.backend.contract import Transaction
from tests.support.faulty_backend import FaultyBackend
from tests.support.workers import Calls, Office


def test_commits_of_two_shards_are_stored_at_the_same_time() -> None:
    backend, calls, both = FaultyBackend(), Calls(), threading.Barrier(2)
    office = Office(partitions=2, backend=backend)
    office.topic.push_many([(f"k{number}", number) for number in range(20)])
    fences = set[str]()

    def meet(transaction: Transaction) -> None:
        if transaction.fence is not None and transaction.fence.name not in fences:
            fences.add(transaction.fence.name)
            both.wait(30)

    backend.before = meet
    with office.subscription.start(calls):
        calls.wait_done(20)
    assert len(fences) == 2
    assert not both.broken


def test_an_end_stores_what_was_decided_while_a_commit_was_under_way() -> None:
    backend, calls, go = FaultyBackend(), Calls(), threading.Event()
    office = Office(backend=backend)
    calls.when("a1", lambda delivery: held.append(True))
    held: list[bool] = []

    def hold(transaction: Transaction) -> None:
        if transaction.fence is not None and held:
            assert go.wait(30)

    backend.before = hold
    office.topic.push_many([("a", "a1"), ("b", "b1"), ("c", "c1")])
    worker = office.subscription.start(calls, concurrency=1)
    calls.wait_done(2)
    threading.Timer(0.2, go.set).start()
    assert worker.close()
    done = len(calls.done)
    with office.subscription.start(calls):
        calls.wait_done(3)
    assert len(calls.done) == max(3, done), "none of them is called again"
