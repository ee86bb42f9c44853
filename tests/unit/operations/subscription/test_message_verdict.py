"""The biography of a message: what each subscription of its topic has done with it."""

from __future__ import annotations

import pytest

from tailrace.delivery.outcome import SUCCESS, CallOutcome
from tailrace.hub.hub import Hub
from tailrace.operations.explain import explain
from tailrace.operations.explanation import Explanation
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.pause import pause
from tests.support.shards import NAME, REJECTED, Shop, fails, grant


def told(shop: Shop, position: str) -> Explanation:
    return explain(Hub.from_backend(shop.backend), position)


def why(found: Explanation) -> str:
    return next(each.what for each in found.facts if each.name == NAME)


@pytest.fixture
def shop() -> Shop:
    """Of c7, one message was delivered and one is a dead letter with one behind it. Of c8, one is
    retried with one behind it. The last message of each is in MQ."""
    shop = Shop(attempts=5)
    shop.push("c7", 1, 2, 3)
    shop.push("c8", 4, 5)

    def handler(value: int) -> CallOutcome:
        return REJECTED if value == 2 else fails(4)(value)

    shop.owner().run(handler)
    shop.push("c7", 6)
    shop.push("c8", 7)
    shop.push("c9", 8, 9)
    grant(shop.backend, "w1", 0)
    return shop


def test_a_delivered_message_is_acknowledged(shop: Shop) -> None:
    found = told(shop, "orders/0.0@0")
    assert found.headline == "ACKNOWLEDGED for crm"
    assert why(found) == "delivered, discarded, not matched by the filter, or before its start"
    assert not found.waits


def test_a_dead_letter_has_its_error_and_what_helps(shop: Shop) -> None:
    found = told(shop, "orders/0.0@1")
    assert found.headline == "DEAD LETTER for crm"
    assert why(found) == (
        "since 2023-11-14 22:13:20Z; attempt 1 of 5: Reject: negative; it blocks key 'c7'"
    )
    assert [each.command for each in found.remedies] == [
        "tailrace dlq crm redeliver --key c7",
        "tailrace dlq crm discard orders/0.0@1 --reason TEXT",
    ]


def test_a_message_behind_a_dead_letter_names_it(shop: Shop) -> None:
    found = told(shop, "orders/0.0@2")
    assert found.headline == "BEHIND A DEAD LETTER for crm"
    assert why(found) == (
        "in the dead-letter queue (DLQ) since 2023-11-14 22:13:20Z,"
        " behind orders/0.0@1 of the same key"
    )


def test_a_retried_message_has_its_attempts_and_due_time(shop: Shop) -> None:
    found = told(shop, "orders/0.0@3")
    assert found.headline == "RETRYING for crm"
    assert why(found) == (
        "failed attempt 1 of 5, the next attempt is at 22:13:25Z; last error: ValueError: no stock"
    )


def test_a_message_behind_a_retried_one_waits(shop: Shop) -> None:
    found = told(shop, "orders/0.0@4")
    assert found.headline == "WAITING for crm"
    assert why(found) == (
        "in the retry queue (RQ) since 2023-11-14 22:13:20Z, behind orders/0.0@3 of the same key"
    )


@pytest.mark.parametrize(
    ("offset", "before"),
    [
        (5, "behind orders/0.0@1 of the same key, in the dead-letter queue (DLQ)"),
        (6, "behind orders/0.0@3 of the same key, in the retry queue (RQ)"),
        (8, "behind orders/0.0@7 of the same key"),
    ],
)
def test_a_message_of_the_topic_waits_for_the_first_of_its_key(
    shop: Shop, offset: int, before: str
) -> None:
    found = told(shop, f"orders/0.0@{offset}")
    assert (found.headline, why(found)) == ("WAITING for crm", before)


def test_the_first_message_of_its_key_is_in_flight_or_next(shop: Shop) -> None:
    found = told(shop, "orders/0.0@7")
    assert found.headline == "PENDING for crm"
    assert why(found) == "in flight, or the next of its key to be called"


def test_a_position_in_a_queue_means_the_message_that_it_holds(shop: Shop) -> None:
    found = told(shop, "tailrace.dead-letter-queue.crm/0.0@1")
    assert found.headline == "BEHIND A DEAD LETTER for crm"
    assert why(found).startswith("the message orders/0.0@2; in the dead-letter queue")
    found = told(shop, "tailrace.retry-queue.crm/0.0@0")
    assert found.headline == "RETRYING for crm"
    assert why(found).startswith("the message orders/0.0@3; failed attempt 1 of 5")


def test_a_message_that_nobody_calls_now_says_why(shop: Shop) -> None:
    pause(shop.backend, NAME, "bad deploy", "ops", 0)
    found = told(shop, "orders/0.0@7")
    assert found.headline == "PAUSED for crm"
    assert [each.command for each in found.remedies] == ["tailrace subscription resume crm"]
    other = Shop()
    other.push("c7", 1)
    found = told(other, "orders/0.0@0")
    assert found.headline == "UNATTENDED for crm"


def test_a_message_without_a_key_is_redelivered_by_its_position() -> None:
    shop = Shop()
    shop.push(None, 1)
    shop.owner().run(lambda value: REJECTED)
    found = told(shop, "orders/0.0@0")
    assert found.headline == "DEAD LETTER for crm"
    assert "blocks" not in why(found)
    assert found.remedies[0].command == "tailrace dlq crm redeliver orders/0.0@0"


def test_a_dead_letter_under_continue_blocks_nothing() -> None:
    shop = Shop(policy=OnDeadLetter.CONTINUE)
    shop.push("c7", 1, 2)
    shop.owner().run(lambda value: REJECTED)
    for offset in (0, 1):
        found = told(shop, f"orders/0.0@{offset}")
        assert found.headline == "DEAD LETTER for crm"
        assert "blocks" not in why(found)


def test_a_message_of_a_storage_topic_of_the_next_generation_waits_there() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.topic.scale(6)
    receipt = shop.topic.push(1, key="c7")
    found = told(shop, receipt.id)
    assert found.headline == "WAITING for crm"
    assert why(found).startswith("in storage 1, which the next generation reads")


def test_a_group_of_the_same_name_has_its_own_verdict() -> None:
    shop = Shop()
    shop.push("c7", 1)
    hub = Hub.from_backend(shop.backend)
    with hub.topic("orders").tail(group=NAME, limit=1) as consumer:
        assert len(list(consumer)) == 1
    shop.owner().run(lambda value: SUCCESS)
    found = told(shop, "orders/0.0@0")
    assert found.headline == "ACKNOWLEDGED for crm, ACKNOWLEDGED for subscription crm"


def test_a_partition_is_explained_for_each_subscription(shop: Shop) -> None:
    found = told(shop, "orders/0.0")
    assert found.headline == "DELIVERING for crm"
    assert why(found).startswith("shard 0, 4 messages to deliver; owner w1, epoch ")
    pause(shop.backend, NAME, "bad deploy", "ops", 0)
    assert told(shop, "orders/0.0").headline == "PAUSED for crm"


def test_a_topic_is_explained_with_its_subscriptions(shop: Shop) -> None:
    found = told(shop, "orders")
    assert found.headline == "BLOCKED for crm"
    assert why(found).endswith(": 1 key blocked by a dead letter, 1 behind it")
    assert [each.command for each in found.remedies][-1] == "tailrace explain crm --subscription"
