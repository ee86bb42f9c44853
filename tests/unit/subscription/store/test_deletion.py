"""A subscription is deleted with all that belongs to it, also if that is interrupted."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Backend, Change, Transaction, raise_fence
from tailrace.errors import BackendUnavailable, Error, Fenced, UnknownSubscription
from tailrace.group.store.start import parse_start
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.subscription.shard.attempts import Attempts, Origin, attempts_key, encode_attempts
from tailrace.subscription.shard.permits import encode_permits, permits_key
from tailrace.subscription.store.definition import find_subscription
from tailrace.subscription.store.lifecycle import (
    delete_subscription,
    read_subscription,
    subscription_names,
)
from tailrace.subscription.store.names import REQUESTS, shard_fence, worker_group
from tailrace.subscription.store.pause import find_pause, pause
from tailrace.topic.consumers import consumers
from tests.support.faulty_backend import FaultyBackend
from tests.support.interleaved_store import InterleavedBackend
from tests.support.topics import push
from tests.unit.subscription.store.stored_subscriptions import create, entries, marks


def _fill(backend: Backend) -> None:
    """Store everything that a subscription may have."""
    group, where = worker_group("crm"), Partition("orders", 0, 0)
    fence = raise_fence(backend.store, shard_fence("crm", "0.0", 0).name)
    failed = encode_attempts(Attempts(1, error="no stock"))
    table = {
        permits_key("crm", where): encode_permits("w1", [9]),
        attempts_key("crm", Origin(where, 4)): failed,
    }
    backend.commit(Transaction(table=table, fence=fence))
    pause(backend, "crm", "deploy", "ops", 1)
    others = [f"{REQUESTS}crm/1", f"group-grant/{group}/0.0", f"group-leader/{group}"]
    others.append(f"group-member/{group}/w1")
    backend.store.commit(Change(writes=dict.fromkeys(others, b"{}")))


def test_a_deleted_subscription_leaves_nothing(hub: Hub, backend: Backend) -> None:
    push(hub.create_topic("orders", partitions=1), 5, keys=5)
    create(backend, start=parse_start("latest"))
    _fill(backend)
    delete_subscription(backend, "crm")
    assert entries(backend) == []
    assert hub.topics() == ["orders"]
    assert consumers(backend.store, "orders") == []
    for table in ("ledger/subscription:crm", "subscription-permits/crm"):
        assert backend.table.scan(table) == []
    assert backend.table.scan("subscription-attempts/crm") == []
    with pytest.raises(UnknownSubscription):
        delete_subscription(backend, "crm")
    create(backend)
    assert marks(backend) == {}
    assert find_pause(backend, "crm") is None


def test_the_owners_of_a_deleted_subscription_cannot_write(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    create(backend)
    fence = raise_fence(backend.store, shard_fence("crm", "0.0", 0).name)
    delete_subscription(backend, "crm")
    create(backend)
    key = permits_key("crm", Partition("orders", 0, 0))
    with pytest.raises(Fenced):
        backend.commit(Transaction(table={key: b"12345678"}, fence=fence))


def test_a_deletion_that_is_interrupted_is_finished_by_the_next() -> None:
    backend = FaultyBackend()
    hub = Hub.from_backend(backend)
    push(hub.create_topic("orders", partitions=1), 5, keys=5)
    create(backend, start=parse_start("latest"))
    _fill(backend)

    def end(transaction: Transaction) -> None:
        raise BackendUnavailable("the process ended")

    backend.before = end
    with pytest.raises(BackendUnavailable):
        delete_subscription(backend, "crm")
    assert subscription_names(backend) == []
    assert entries(backend) == []
    backend.before = lambda transaction: None
    delete_subscription(backend, "crm")
    assert backend.table.scan("ledger/subscription:crm") == []
    with pytest.raises(UnknownSubscription):
        delete_subscription(backend, "crm")


def test_a_late_deletion_does_not_touch_a_new_subscription() -> None:
    backend = FaultyBackend()
    hub = Hub.from_backend(backend)
    push(hub.create_topic("orders", partitions=1), 5, keys=5)
    create(backend, start=parse_start("latest"))
    end = marks(backend)

    def create_again(transaction: Transaction) -> None:
        backend.before = lambda transaction: None
        create(backend, start=parse_start("latest"))

    backend.before = create_again
    delete_subscription(backend, "crm")
    assert marks(backend) == end
    assert subscription_names(backend) == ["crm"]


def test_a_subscription_that_is_deleted_while_it_is_read_is_not_found(
    hub: Hub, backend: Backend
) -> None:
    hub.create_topic("orders", partitions=1)
    create(backend)
    racing: Any = InterleavedBackend(
        backend, "subscription/crm", lambda: delete_subscription(backend, "crm")
    )
    assert find_subscription(racing, "crm") is None


def test_a_subscription_whose_topic_was_deleted_can_be_deleted(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    create(backend)
    hub.delete_topic("orders")
    with pytest.raises(Error):
        read_subscription(backend, "crm")
    delete_subscription(backend, "crm")
    assert hub.topics() == []
    assert entries(backend) == []
