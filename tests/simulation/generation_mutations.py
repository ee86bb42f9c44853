"""The safeguards of generations, each removed, to prove that the simulator notices.

A mutation replaces one function for the time of a test; the code itself knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tailrace.backend.contract import FENCES, Backend, Change
from tailrace.group.store.definition import unit_fence
from tailrace.message import Partition
from tailrace.subscription.layout import feeding
from tailrace.subscription.store import ledgers
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.generations import drained, feeders, steps
from tailrace.subscription.store.generations.requests import DividedRequests
from tailrace.subscription.store.names import worker_group
from tailrace.topic.ledger import Progress


def without_the_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation ends, and its owners are not fenced."""
    right = steps._fencing

    def fencing(stored: StoredSubscription) -> Change:
        change = right(stored)
        own = FENCES + unit_fence(worker_group(stored.name), "")
        writes = {key: value for key, value in change.writes.items() if not key.startswith(own)}
        return replace(change, writes=writes)

    monkeypatch.setattr(steps, "_fencing", fencing)
    monkeypatch.setattr(steps, "_has_owners", lambda backend, stored: False)


def without_the_intersection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is done as soon as the ledger of any feeder holds it."""

    def held_by_any(every: Iterable[Progress], end: int) -> Iterator[tuple[int, int]]:
        for ledger in every:
            yield 0, min(ledger.mark, end)
            yield from ledger.ranges()

    monkeypatch.setattr(feeding, "held_by_all", held_by_any)


def without_what_feeders_have_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next generation begins with what was done before the feeders of the last one."""
    monkeypatch.setattr(feeders, "merged", lambda base, every, end: base.copy())


def without_feeders(monkeypatch: pytest.MonkeyPatch) -> None:
    """What older storage topics of RQ and DLQ hold stays with the shards of their partitions."""
    monkeypatch.setattr(StoredSubscription, "fed_storage", lambda stored, queue: [])


def without_the_order_of_storage_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fed does not hold back the messages of its key in newer storage topics."""
    right = ledgers._with_fed

    def with_fed(
        own: Iterable[Partition], fed_storage: set[int], fed: Iterable[Partition], topic: str
    ) -> tuple[Partition, ...]:
        every = right(own, fed_storage, fed, topic)
        return tuple(sorted(every, key=lambda each: (-each.storage, each.number)))

    monkeypatch.setattr(ledgers, "_with_fed", with_fed)


def without_the_wait_for_older_storage_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation begins while keys have messages in storage topics of other shards."""
    monkeypatch.setattr(steps, "is_possible", lambda backend, stored, following: True)


def without_dividing_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests stay with the shards for which they were made."""

    def divided(backend: Backend, stored: StoredSubscription, after: Any) -> DividedRequests:
        return DividedRequests(Change(), {})

    monkeypatch.setattr(steps, "divided_requests", divided)


def without_the_check_that_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older storage topics of RQ and DLQ are deleted with the messages that they hold."""
    monkeypatch.setattr(drained, "unacknowledged_in", lambda *where: 0)


MUTATIONS = {
    mutation.__name__: mutation
    for mutation in (
        without_the_fences,
        without_the_intersection,
        without_what_feeders_have_done,
        without_feeders,
        without_the_order_of_storage_topics,
        without_the_wait_for_older_storage_topics,
        without_dividing_requests,
        without_the_check_that_nothing_is_left,
    )
}
