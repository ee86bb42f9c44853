"""A key is explained: what holds it, where its messages are, and what helps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.delivery.outcome import CallOutcome
from tailrace.errors import InvalidValue, UnknownSubscription
from tailrace.hub.hub import Hub
from tailrace.operations.explanation import Explanation
from tailrace.operations.subscription.explain_key import explain_key
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.store.pause import pause
from tests.support.letter_requests import ask, key_target
from tests.support.shards import NAME, REJECTED, Shop, fails, grant


def explain(shop: Shop, key: str = "c7") -> Explanation:
    return explain_key(Hub.from_backend(shop.backend), NAME, key)


def fact(found: Explanation, name: str) -> str:
    return next(each.what for each in found.facts if each.name == name)


def commands(found: Explanation) -> list[str]:
    return [each.command for each in found.remedies]


def worked(shop: Shop, handler: Callable[[int], CallOutcome] | None = None) -> Shop:
    """Let a worker call all messages that are due, and let it be there."""
    shop.owner().run(handler or fails())
    grant(shop.backend, "w1", 0)
    return shop


def test_a_key_without_messages_is_caught_up_or_idle() -> None:
    shop = Shop()
    found = explain(shop)
    assert found.headline == (
        "IDLE: every message of 'c7' is acknowledged, no worker owns its shard"
    )
    assert (found.waits, found.remedies) == (False, ())
    assert explain(worked(shop)).headline == "CAUGHT UP: every message of 'c7' is acknowledged"


def test_a_key_that_nothing_holds_is_delivered() -> None:
    shop = worked(Shop())
    shop.push("c7", 1, 2)
    found = explain(shop)
    assert found.headline == "DELIVERING: 2 messages of 'c7' to deliver, nothing holds them"
    assert fact(found, "behind it") == "1 message of 'c7', in MQ"
    assert fact(found, "first").startswith("orders/0.0@0, of ")
    assert fact(found, "first").endswith(", in the topic (MQ)")


def test_a_retried_key_has_its_next_attempt_and_its_last_error() -> None:
    shop = Shop(attempts=5)
    shop.push("c7", 1, 2)
    found = explain(worked(shop, fails(1)))
    assert found.headline == (
        "RETRYING since 2023-11-14 22:13:20Z: orders/0.0@0 failed attempt 1 of 5,"
        " the next attempt is at 22:13:25Z"
    )
    assert fact(found, "last") == "attempt 1 of 5: ValueError: no stock"
    assert fact(found, "behind it") == "1 message of 'c7', in RQ"
    shop.push("c7", 3)
    assert fact(explain(shop), "behind it") == "2 messages of 'c7': 1 in RQ, 1 in MQ"


def test_attempts_without_end_have_no_last_one() -> None:
    shop = Shop(attempts=None)
    shop.push("c7", 1)
    assert " failed attempt 1, the next attempt is at " in explain(worked(shop, fails(1))).headline


def test_a_blocked_key_without_a_worker_needs_one_too() -> None:
    shop = Shop()
    shop.push("c7", 1)
    shop.owner().run(lambda value: REJECTED)
    found = explain(shop)
    assert found.headline.startswith("BLOCKED since ")
    assert fact(found, "behind it") == "no other message of 'c7'"
    assert fact(found, "owner").startswith("shard 0 has no owner")
    assert commands(found) == [
        "tailrace dlq crm redeliver --key c7",
        "tailrace dlq crm discard orders/0.0@0 --reason TEXT",
        "tailrace subscription run crm MODULE:FUNCTION",
    ]


def test_under_continue_dead_letters_are_set_aside() -> None:
    shop = Shop(policy=OnDeadLetter.CONTINUE)
    shop.push("c7", 1, 2)
    found = explain(worked(shop, lambda value: REJECTED if value == 1 else fails()(value)))
    assert found.headline == "CAUGHT UP: every message of 'c7' is acknowledged"
    assert fact(found, "set aside") == ("1 dead letter; later messages are delivered without them")
    assert commands(found) == ["tailrace dlq crm redeliver --key c7"]


def test_a_paused_key_names_who_paused_it() -> None:
    shop = worked(Shop())
    shop.push("c7", 1)
    pause(shop.backend, NAME, "bad deploy", "ops@host", 0)
    found = explain(shop)
    assert found.headline == (
        "PAUSED since 1970-01-01 00:00:00Z by ops@host: bad deploy; 1 message of 'c7' waits"
    )
    assert commands(found) == ["tailrace subscription resume crm"]


def test_a_key_whose_shard_has_no_owner_is_unattended() -> None:
    shop = Shop()
    shop.push("c7", 1)
    found = explain(shop)
    assert found.headline == "UNATTENDED: no worker owns shard 0, 1 message of 'c7' waits"
    assert commands(found) == ["tailrace subscription run crm MODULE:FUNCTION"]


def test_a_key_waits_for_the_partitions_before_its_own() -> None:
    shop = Shop(partitions=1)
    shop.push("other", 1)
    shop.topic.scale(2)
    shop.push("c7", 2)
    grant(shop.backend, "w1", 0)
    found = explain(shop)
    assert found.headline == (
        "WAITING: orders/0.0 must be finished first, to keep the order of the key,"
        " 1 message of 'c7' waits"
    )


def test_a_key_in_a_storage_topic_of_the_next_generation_waits() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.topic.scale(6)
    shop.push("c7", 1, 2)
    grant(shop.backend, "w1", 0, 1, 2, 3)
    found = explain(shop)
    assert found.headline == (
        "WAITING: the next generation reads storage 1 once all before is finished,"
        " since keys change their shard, 2 messages of 'c7' wait"
    )
    assert fact(found, "behind it") == "1 message of 'c7', in storage 1"


def test_an_unknown_subscription_and_an_empty_key_are_refused() -> None:
    shop = Shop()
    with pytest.raises(InvalidValue, match="not empty"):
        explain(shop, "")
    with pytest.raises(UnknownSubscription):
        explain_key(Hub.from_backend(shop.backend), "crn", "c7")


def test_a_letter_that_failed_again_has_more_attempts_than_the_policy() -> None:
    shop = Shop(attempts=2)
    shop.push("c7", 1)
    owner = shop.owner()
    owner.run_until_idle(fails(1))
    assert fact(explain(shop), "last").startswith("attempt 2 of 2: ")
    ask(shop, RequestAction.REDELIVER, key_target("c7"))
    owner.read_requests()
    owner.run(fails(1))
    assert fact(explain(shop), "last").startswith("attempt 3: ")
