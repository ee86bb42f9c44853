"""Messages that were given back too often, as somebody sees them who does not consume."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Backend, Change
from tailrace.errors import BackendUnavailable, DeliveryFailed
from tailrace.group import failed as failed_module
from tailrace.group.delivery import Delivery
from tailrace.group.failed import FAILED, FailedMessage
from tailrace.group.topic import Topic
from tailrace.hub import Hub
from tailrace.testing import MemoryBackend
from tests.unit.group.consuming import for_each
from tests.unit.group_store.consuming import GROUP, ack_all

UNIT = "orders/0.0"


@pytest.fixture
def hub(backend: Backend) -> Hub:
    """A hub with the time of the world: consumers run."""
    return Hub.from_backend(backend)


@pytest.fixture
def orders(hub: Hub) -> Topic[Any]:
    """A topic of one partition with messages of four keys."""
    orders = hub.create_topic("orders", partitions=1)
    for number in range(8):
        orders.push(number, key=f"k{number % 4}")
    return orders


def fail(topic: Topic[Any], *keys: str, times: int = 1) -> list[str]:
    """Consume all, but give back what has these keys; where that failed."""
    positions = []

    def refuse(delivery: Delivery[Any]) -> None:
        if delivery.key in keys:
            delivery.nack()

    with topic.tail(group=GROUP, attempts=2, until="end") as deliveries:
        for _ in range(times):
            with pytest.raises(DeliveryFailed) as caught:
                for_each(deliveries, refuse)
            positions.append(caught.value.position)
    return positions


def shown(hub: Hub) -> tuple[FailedMessage, ...]:
    (stream,) = hub.group(GROUP).describe().streams
    return stream.failed


def kept(backend: Backend) -> list[str]:
    return [entry.key for entry in backend.store.scan(FAILED)]


def test_a_message_given_back_too_often_is_shown_until_it_is_skipped(
    hub: Hub, orders: Topic[Any]
) -> None:
    (position,) = fail(orders, "k2")
    (found,) = shown(hub)
    assert (found.position, found.key, found.attempts) == (position, "k2", 2)
    assert hub.group(GROUP).describe().summary.failed == 1
    hub.group(GROUP).skip(position, reason="cannot be done")
    assert shown(hub) == ()


def test_the_history_keeps_that_a_message_failed(hub: Hub, orders: Topic[Any]) -> None:
    (position,) = fail(orders, "k2")
    (found,) = shown(hub)
    (line,) = [line for line in hub.group(GROUP).history() if line.what == "failed"]
    assert (line.unit, line.consumer) == (UNIT, found.consumer)
    assert line.why == f"{position} was given back 2 times"


def test_those_of_a_stream_are_shown_lowest_first(hub: Hub, orders: Topic[Any]) -> None:
    positions = fail(orders, "k2", "k1", times=2)
    assert [each.position for each in shown(hub)] == sorted(positions)


def test_what_is_acknowledged_by_now_is_dropped_at_the_next_failure(
    hub: Hub, backend: Backend, orders: Topic[Any]
) -> None:
    (first,) = fail(orders, "k2")
    ack_all(backend, UNIT)
    orders.push(8, key="k3")
    (second,) = fail(orders, "k3")
    assert kept(backend) == [f"{FAILED}{GROUP}/{second}"] != [f"{FAILED}{GROUP}/{first}"]


def test_no_more_are_kept_than_anybody_looks_at(
    hub: Hub, backend: Backend, orders: Topic[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed_module, "KEPT_MAX", 1)
    fail(orders, "k1", "k2", times=2)
    assert len(kept(backend)) == len(shown(hub)) == 1


@pytest.mark.parametrize("to", ["earliest", "latest"])
def test_a_seek_forgets_what_failed_before(
    hub: Hub, backend: Backend, orders: Topic[Any], to: str
) -> None:
    fail(orders, "k2")
    hub.group(GROUP).seek(to)
    assert shown(hub) == ()
    assert kept(backend) == []


def test_a_deleted_group_leaves_nothing_that_failed(
    hub: Hub, backend: Backend, orders: Topic[Any]
) -> None:
    fail(orders, "k2")
    hub.group(GROUP).delete()
    assert kept(backend) == []


def test_a_new_topic_of_the_same_name_has_not_failed(
    hub: Hub, backend: Backend, orders: Topic[Any]
) -> None:
    fail(orders, "k2")
    hub.delete_topic("orders")
    again = hub.create_topic("orders", partitions=1)
    for number in range(8):
        again.push(number, key="k0")
    assert shown(hub) == ()
    with again.tail(group=GROUP, limit=1) as deliveries:
        list(deliveries)
    assert shown(hub) == ()
    assert kept(backend) == []


def test_a_store_that_fails_hides_no_failed_delivery(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = MemoryBackend()
    hub = Hub.from_backend(backend)
    orders = hub.create_topic("orders", partitions=1)
    orders.push(1, key="k1")
    commit = backend.store.commit

    def refuse(change: Change) -> int:
        if any(key.startswith(FAILED) for key in change.writes):
            raise BackendUnavailable("out of order")
        return commit(change)

    monkeypatch.setattr(backend.store, "commit", refuse)
    fail(orders, "k1")
    assert shown(hub) == ()
    assert "orders/0.0@0 failed is not shown" in caplog.text
