"""The group state of a key: its newest and its last consumed message in RQ and DLQ."""

from __future__ import annotations

from tailrace.delivery.outcome import SUCCESS
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.group_state import (
    GroupStates,
    MessageState,
    QueueState,
    read_group_state,
)
from tests.support.shards import FAILED, REJECTED, RETRY_S, Shop, fails, stored


def state_of(shop: Shop, key: str = "c7") -> GroupStates:
    return read_group_state(shop.backend, stored(shop.backend), key)


def test_a_key_that_lags_nowhere_has_no_state() -> None:
    shop = Shop()
    shop.push("c7", 1, 2)
    owner = shop.owner()
    assert state_of(shop) == GroupStates(None, None)
    owner.run_until_idle(fails(1, times=1))
    assert shop.queued(Queue.RQ) == [1, 2]
    assert state_of(shop) == GroupStates(None, None)


def test_p_is_the_newest_message_and_c_the_last_consumed_one() -> None:
    shop = Shop(attempts=None)
    shop.push("other", 0)
    shop.push("c7", 1, 2, 3)
    owner = shop.owner()
    owner.run(fails(1, 2))
    assert state_of(shop).rq == QueueState(MessageState(0, 3, 0, 2), None)
    shop.now = RETRY_S
    owner.run(fails(2))
    assert state_of(shop) == GroupStates(
        QueueState(MessageState(0, 3, 0, 2), MessageState(0, 1, 0, 0)), None
    )


def test_dead_letters_and_their_followers_are_in_the_state_of_dlq() -> None:
    shop = Shop(attempts=1)
    shop.push("c7", 1, 2)
    shop.owner().run(lambda value: REJECTED if value == 1 else SUCCESS)
    assert state_of(shop) == GroupStates(None, QueueState(MessageState(0, 1, 0, 1), None))
    assert state_of(shop, "other") == GroupStates(None, None)


def test_storage_topics_are_told_apart() -> None:
    shop = Shop(partitions=1, attempts=None)
    shop.push("c7", 1)
    owner = shop.owner()
    owner.run(lambda value: FAILED)
    shop.topic.scale(2)
    shop.push("c7", 2)
    owner.reopen()
    owner.machine.wake(owner.stored.streams(0).mq)
    owner.run(lambda value: FAILED)
    assert state_of(shop).rq == QueueState(MessageState(1, 0, 1, 0), None)
