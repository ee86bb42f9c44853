"""What a scaling means for subscriptions is known before it is made."""

from __future__ import annotations

import pytest

from tailrace.hub.hub import Hub
from tailrace.subscription.layout.agreement import key_shard
from tailrace.subscription.store.generations.opening import closed_storage, opening_of
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.store.scaling import ScalingEffect, change_effect
from tailrace.topic.router import RouterKind


@pytest.fixture(autouse=True)
def subscribed(hub: Hub) -> None:
    hub.create_topic("orders", partitions=4)
    hub.create_subscription("crm", topic="orders")
    hub.create_subscription("mailer", topic="orders", shards=2)


def effects(hub: Hub, partitions: int) -> list[ScalingEffect]:
    """Return what a scaling would mean."""
    after = hub.topic("orders").view.definition.scaled(partitions, any_count=False)
    return change_effect(hub.backend, "orders", after)


def test_subscriptions_whose_keys_keep_their_shards_continue(hub: Hub) -> None:
    assert effects(hub, 12) == [
        ScalingEffect("crm", 4),
        ScalingEffect("mailer", 2),
    ]


def test_a_storage_topic_in_which_keys_move_is_of_the_next_generation(hub: Hub) -> None:
    crm, mailer = effects(hub, 6)
    assert (crm.closed, crm.open_with, mailer.closed) == (1, (1,), 1)
    assert 0 < crm.moved < 1
    assert crm.example is not None
    topic = hub.topic("orders")
    topic.scale(6)
    stored = read_subscription(hub.backend, "crm")
    assert opening_of(stored) is None
    assert closed_storage(stored) == crm.closed
    shards = {
        key_shard(stored.definition.strategy, RouterKind.SHARD_CONSISTENT, shape, 4, crm.example)
        for shape in topic.view.definition.storage
    }
    assert len(shards) == 2


def test_a_storage_topic_of_the_next_generation_keeps_later_ones_for_it(hub: Hub) -> None:
    hub.topic("orders").scale(6)
    crm, _ = effects(hub, 4)
    assert crm.closed == 1


def test_a_storage_topic_that_was_added_before_counts(hub: Hub) -> None:
    topic = hub.topic("orders")
    topic.add_storage_topic(6)
    assert effects(hub, 12)[0].closed == 1
    switched = topic.view.refresh().definition.switched()
    assert [each.closed for each in change_effect(hub.backend, "orders", switched)] == [1, 1]


def test_subscriptions_of_an_earlier_topic_of_the_name_are_left_out(hub: Hub) -> None:
    hub.delete_topic("orders")
    hub.create_topic("orders", partitions=4)
    assert effects(hub, 12) == []
