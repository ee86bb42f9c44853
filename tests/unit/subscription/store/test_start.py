"""A new subscription starts at a place in the messages that are there."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Backend
from tailrace.errors import InvalidValue
from tailrace.group.store.start import parse_start
from tailrace.hub.hub import Hub
from tests.support.topics import push
from tests.unit.subscription.store.stored_subscriptions import create, marks


def test_a_subscription_starts_at_the_oldest_message_by_default(hub: Hub, backend: Backend) -> None:
    push(hub.create_topic("orders", partitions=2), 10, keys=10)
    create(backend)
    assert marks(backend) == {}


def test_a_subscription_that_starts_at_the_end_has_acknowledged_the_older_messages(
    hub: Hub, backend: Backend
) -> None:
    topic = hub.create_topic("orders", partitions=2)
    push(topic, 10, keys=10)
    topic.scale(4)
    push(topic, 10, keys=10)
    stored = create(backend, start=parse_start("latest"))
    ends = {
        f"orders/{storage.index}.{number}": end
        for storage in topic.storage_topics
        for number, end in enumerate(storage.ends)
        if end
    }
    assert marks(backend) == ends
    assert stored.definition.start == "latest"


def test_a_subscription_starts_at_a_position_and_skips_earlier_storage_topics(
    hub: Hub, backend: Backend
) -> None:
    topic = hub.create_topic("orders", partitions=1)
    push(topic, 3, keys=3)
    end = topic.storage_topics[0].ends[0]
    topic.scale(2)
    push(topic, 10, keys=10)
    create(backend, start=parse_start("orders/1.0@1"))
    assert marks(backend) == {"orders/0.0": end, "orders/1.0": 1}
    with pytest.raises(InvalidValue, match="a position in orders"):
        create(backend, "other", start=parse_start("refunds/0.0@1"))
