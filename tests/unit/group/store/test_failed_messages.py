"""Messages that were nacked too often, as seen from outside the group."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Backend, Transaction
from tailrace.delivery import failed_attempts
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.failed_attempts import failed_table
from tailrace.errors import BackendUnavailable, DeliveryFailed
from tailrace.group.store.failed_messages import FailedMessage
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tests.support.faulty_backend import FaultyBackend
from tests.support.groups import GROUP, ack_all, for_each

UNIT = "orders/0.0"


@pytest.fixture
def hub(backend: Backend) -> Hub:
    """A hub with the system clock, because consumers run."""
    return Hub.from_backend(backend)


@pytest.fixture
def orders(hub: Hub) -> Topic[Any]:
    """A topic of one partition with messages of four keys."""
    orders = hub.create_topic("orders", partitions=1)
    for number in range(8):
        orders.push(number, key=f"k{number % 4}")
    return orders


def fail(topic: Topic[Any], *keys: str, times: int = 1) -> list[str]:
    """Consume all messages and nack those of some keys. Returns the failed positions."""
    positions = []

    def refuse(delivery: Delivery[Any]) -> None:
        if delivery.key in keys:
            delivery.nack()

    with topic.tail(group=GROUP, attempts=2, until="end") as consumer:
        for _ in range(times):
            with pytest.raises(DeliveryFailed) as caught:
                for_each(consumer, refuse)
            positions.append(caught.value.position)
    return positions


def shown(hub: Hub) -> tuple[FailedMessage, ...]:
    (stream,) = hub.group(GROUP).describe().partitions
    return stream.failed


def kept(backend: Backend) -> list[str]:
    return [key.decode() for key, _ in backend.table.scan(failed_table(GROUP))]


def test_a_message_nacked_too_often_is_shown_until_it_is_skipped(
    hub: Hub, orders: Topic[Any]
) -> None:
    (position,) = fail(orders, "k2")
    (found,) = shown(hub)
    assert (found.position, found.key, found.attempts) == (position, "k2", 2)
    assert hub.group(GROUP).describe().summary.failed == 1
    hub.group(GROUP).skip(position, reason="cannot be done")
    assert shown(hub) == ()


def test_the_history_records_a_failed_message(hub: Hub, orders: Topic[Any]) -> None:
    (position,) = fail(orders, "k2")
    (found,) = shown(hub)
    (line,) = [line for line in hub.group(GROUP).history() if line.what == "failed"]
    assert (line.partition, line.consumer) == (UNIT, found.consumer)
    assert line.why == f"{position} failed after 2 attempts"


def test_failed_messages_of_a_partition_are_shown_lowest_first(
    hub: Hub, orders: Topic[Any]
) -> None:
    positions = fail(orders, "k2", "k1", times=2)
    assert [each.position for each in shown(hub)] == sorted(positions)


def test_failed_messages_acknowledged_since_are_dropped_at_the_next_failure(
    hub: Hub, backend: Backend, orders: Topic[Any]
) -> None:
    (first,) = fail(orders, "k2")
    ack_all(backend, UNIT)
    orders.push(8, key="k3")
    (second,) = fail(orders, "k3")
    assert kept(backend) == [second] != [first]


def test_the_number_of_failed_messages_kept_is_bounded(
    hub: Hub, backend: Backend, orders: Topic[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed_attempts, "KEPT_MAX", 1)
    fail(orders, "k1", "k2", times=2)
    assert len(kept(backend)) == len(shown(hub)) == 1


@pytest.mark.parametrize("to", ["earliest", "latest"])
def test_a_seek_removes_earlier_failed_messages(
    hub: Hub, backend: Backend, orders: Topic[Any], to: str
) -> None:
    fail(orders, "k2")
    hub.group(GROUP).seek(to)
    assert shown(hub) == ()
    assert kept(backend) == []


def test_a_deleted_group_leaves_no_failed_messages(
    hub: Hub, backend: Backend, orders: Topic[Any]
) -> None:
    fail(orders, "k2")
    hub.group(GROUP).delete()
    assert kept(backend) == []


def test_a_new_topic_of_the_same_name_has_no_failed_messages(
    hub: Hub, backend: Backend, orders: Topic[Any]
) -> None:
    fail(orders, "k2")
    hub.delete_topic("orders")
    again = hub.create_topic("orders", partitions=1)
    for number in range(8):
        again.push(number, key="k0")
    assert shown(hub) == ()
    with again.tail(group=GROUP, limit=1) as consumer:
        list(consumer)
    assert shown(hub) == ()
    assert kept(backend) == []


def test_a_hub_that_fails_hides_no_failed_delivery(caplog: pytest.LogCaptureFixture) -> None:
    backend = FaultyBackend()
    hub = Hub.from_backend(backend)
    orders = hub.create_topic("orders", partitions=1)
    orders.push(1, key="k1")

    def refuse(transaction: Transaction) -> None:
        if transaction.appends or any("failed" in key.table for key in transaction.table):
            raise BackendUnavailable("out of order")

    backend.before = refuse
    fail(orders, "k1")
    assert shown(hub) == ()
    assert "cannot record that orders/0.0@0 failed" in caplog.text
