"""The plans for a topic say what they mean for its subscriptions."""

from __future__ import annotations

from tailrace.hub.hub import Hub
from tailrace.operations.plan import ChangePlan
from tailrace.operations.topic.changes import (
    plan_add_storage,
    plan_delete,
    plan_scale,
    plan_switch,
    scale,
)
from tailrace.operations.topic.describe import TopicSubscription, show_topic
from tests.support.shards import REJECTED, Shop, grant

NEXT_GENERATION = (
    "reads storage 1 with a new generation of 4 shards, once all before it is acknowledged:"
    " 75% of the keys, such as 'c0', change the shard; none would with 1 shard"
)


def effect(plan: ChangePlan, name: str = "crm (4 shards)") -> str:
    return next(each.what for each in plan.facts if each.name == name)


def test_a_scaling_that_keeps_the_shards_says_so() -> None:
    hub = Hub.from_backend(Shop(partitions=4, shards=4).backend)
    assert effect(plan_scale(hub, "orders", 12, any_count=False)) == "no key changes its shard"
    assert effect(scale(hub, "orders", 12, any_count=False)) == "no key changes its shard"


def test_a_scaling_that_needs_another_generation_says_for_which_keys() -> None:
    hub = Hub.from_backend(Shop(partitions=4, shards=4).backend)
    assert effect(plan_scale(hub, "orders", 6, any_count=False)) == NEXT_GENERATION
    assert effect(plan_add_storage(hub, "orders", 6, any_count=False)) == NEXT_GENERATION
    hub.topic("orders").add_storage_topic(6)
    assert effect(plan_switch(hub, "orders")) == NEXT_GENERATION
    assert show_topic(hub, "orders").subscriptions == (TopicSubscription("crm", 4, None),)
    hub.topic("orders").switch_produce()
    assert show_topic(hub, "orders").subscriptions == (TopicSubscription("crm", 4, 1),)


def test_what_a_subscription_has_not_read_is_counted_under_its_name() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.push("c7", 1, 2)
    plan = plan_scale(Hub.from_backend(shop.backend), "orders", 12, any_count=False)
    assert effect(plan, "subscription crm") == "has 2 messages of the topic unread"


def test_the_deletion_of_a_topic_names_the_subscriptions_that_end() -> None:
    shop = Shop()
    shop.push("c7", 1, 2)
    shop.owner().run(lambda value: REJECTED)
    shop.push("c7", 3)
    grant(shop.backend, "w1", 0)
    plan = plan_delete(Hub.from_backend(shop.backend), "orders")
    assert [(each.name, each.what) for each in plan.facts][:2] == [
        (
            "subscription crm",
            "ends, with 1 running worker; 2 messages in its queues;"
            " delete it too: tailrace subscription delete crm",
        ),
        ("subscription crm", "has not acknowledged 1 message, which will be lost"),
    ]
