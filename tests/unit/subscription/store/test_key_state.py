"""The state of a key says what holds it, and who works on it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tailrace.clock import utc_time
from tailrace.errors import InvalidValue
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.store import queue_scan
from tailrace.subscription.store.key_state import KeyState, KeyStatus, read_key_state
from tailrace.subscription.store.owners import shard_owners
from tailrace.subscription.store.pause import pause
from tests.support.shards import NAME, REJECTED, RETRY_S, Shop, fails, grant, stored

START = utc_time(1_700_000_000_000)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def state_of(shop: Shop, key: str = "c7") -> KeyState:
    return read_key_state(shop.backend, stored(shop.backend), key)


def test_nothing_holds_a_key_whose_messages_are_delivered() -> None:
    shop = Shop(partitions=4, shards=2)
    shop.push("c7", 1, 2)
    for shard in (0, 1):
        shop.owner(shard).run()
    grant(shop.backend, "w1", 0, 1)
    state = state_of(shop)
    assert (state.state, state.head, state.since) == (KeyStatus.FLOWING, None, None)
    assert (state.mq, state.rq, state.dlq, state.behind) == (0, 0, 0, 0)
    assert state.owner is not None
    assert (state.owner.worker, state.owner.process) == ("w1", "process 7 of w1")


def test_a_key_whose_messages_are_next_flows() -> None:
    shop = Shop()
    grant(shop.backend, "w1", 0)
    shop.push("other", 0)
    shop.push("c7", 1, 2)
    state = state_of(shop)
    assert (state.state, state.mq, state.behind) == (KeyStatus.FLOWING, 2, 1)
    assert state.head is not None
    assert (state.head.queue, state.head.origin) == (Queue.MQ, "orders/0.0@1")
    assert (state.head.attempts, state.head.failed, state.head.due) == (0, None, None)


def test_a_retrying_key_has_attempts_an_error_and_a_due_time() -> None:
    shop = Shop(attempts=5)
    shop.push("c7", 1, 2, 3)
    shop.push("other", 4)
    owner = shop.owner()
    grant(shop.backend, "w1", 0)
    owner.run(fails(1))
    shop.now = RETRY_S
    owner.run(fails(1))
    state = state_of(shop)
    head = state.head
    assert state.state is KeyStatus.RETRYING
    assert head is not None
    assert (head.queue, head.origin) == (Queue.RQ, "orders/0.0@0")
    assert head.position.startswith("tailrace.retry-queue.crm/0.0@")
    assert (head.attempts, head.attempts_max) == (2, 5)
    assert (head.error, head.failed) == ("ValueError: no stock", after(0))
    assert head.due == after(2 * RETRY_S)
    assert state.since == after(0)
    assert (state.rq, state.mq, state.dlq, state.behind) == (3, 0, 0, 2)
    assert state_of(shop, "other").state is KeyStatus.FLOWING


def test_a_blocked_key_names_the_dead_letter_and_what_is_behind_it() -> None:
    shop = Shop()
    grant(shop.backend, "w1", 0)
    shop.now = 7.0
    shop.push("c7", 1, 2, 3)
    owner = shop.owner()
    owner.run(lambda value: REJECTED)
    shop.push("c7", 4)
    state = state_of(shop)
    assert (state.state, state.since) == (KeyStatus.BLOCKED, after(7))
    assert (state.dlq, state.rq, state.mq, state.behind) == (3, 0, 1, 3)
    head = state.head
    assert head is not None
    assert (head.queue, head.origin) == (Queue.DLQ, "orders/0.0@0")
    assert (head.attempts, head.error, head.due) == (1, "Reject: negative", None)


def test_under_continue_a_dead_letter_holds_nothing() -> None:
    shop = Shop(policy=OnDeadLetter.CONTINUE)
    shop.push("c7", 1)
    shop.owner().run(lambda value: REJECTED)
    grant(shop.backend, "w1", 0)
    state = state_of(shop)
    assert (state.state, state.head, state.dlq) == (KeyStatus.FLOWING, None, 1)


def test_a_key_of_a_shard_without_an_owner_is_unattended() -> None:
    shop = Shop(attempts=5)
    shop.push("c7", 1)
    assert (state_of(shop).state, state_of(shop).owner) == (KeyStatus.UNATTENDED, None)
    hold = grant(shop.backend, "w1", 0)
    shop.owner().run(fails(1))
    hold.release()
    state = state_of(shop)
    assert (state.state, state.owner, state.rq) == (KeyStatus.UNATTENDED, None, 1)


def test_an_owner_whose_grant_is_fenced_or_of_another_generation_does_not_count() -> None:
    shop = Shop(partitions=4, shards=2)
    grant(shop.backend, "w1", 0, 1, 5)
    definition = stored(shop.backend).definition
    assert shard_owners(shop.backend, NAME, definition).keys() == {0, 1, 5}
    shop.owner(0)
    assert shard_owners(shop.backend, NAME, definition).keys() == {1, 5}


def test_a_pause_holds_all_keys_but_not_longer_than_a_dead_letter() -> None:
    shop = Shop()
    grant(shop.backend, "w1", 0)
    shop.push("bad", 1)
    shop.push("c7", 2)
    shop.owner().run(lambda value: REJECTED)
    shop.push("new", 3)
    pause(shop.backend, NAME, "bad deploy", "ops@host", 1_700_000_000_000)
    assert state_of(shop, "bad").state is KeyStatus.BLOCKED
    state = state_of(shop, "new")
    assert (state.state, state.since) == (KeyStatus.PAUSED, after(0))
    assert state.paused is not None
    assert state.paused.reason == "bad deploy"


def test_a_key_waits_for_the_partitions_that_its_partition_follows() -> None:
    shop = Shop(partitions=2, shards=1)
    shop.push("other", 0)
    shop.topic.scale(4)
    key = next(
        f"k{n}"
        for n in range(100)
        if shop.topic.follows(f"orders/1.{shop.topic.route(f'k{n}')}")
        == shop.topic.follows(f"orders/1.{shop.topic.route('other')}")
    )
    shop.push(key, 1)
    owner = shop.owner()
    owner.reopen()
    grant(shop.backend, "w1", 0)
    state = state_of(shop, key)
    assert state.state is KeyStatus.WAITING
    (followed,) = state.waits_for
    assert followed.startswith("orders/0.")
    owner.run_until_idle(fails())
    assert (state_of(shop, key).state, state_of(shop, key).waits_for) == (KeyStatus.FLOWING, ())


def test_a_key_in_a_closed_storage_topic_waits() -> None:
    shop = Shop(partitions=4, shards=4)
    grant(shop.backend, "w1", 0, 1, 2, 3)
    shop.topic.scale(6)
    shop.push("c7", 1)
    shop.owner(0).reopen()
    state = state_of(shop)
    assert (state.state, state.closed, state.closed_storage) == (KeyStatus.WAITING, 1, 1)
    assert state.head is not None
    assert state.head.origin.startswith("orders/1.")


def test_a_message_without_a_key_has_no_key_state() -> None:
    with pytest.raises(InvalidValue, match="holds back no other"):
        state_of(Shop(), "")


@pytest.mark.parametrize("key", ["c7", b"c7"])
def test_keys_are_text_or_bytes(key: str | bytes) -> None:
    shop = Shop(gap_every=2)
    shop.push("c7", 1, 2, 3)
    state = read_key_state(shop.backend, stored(shop.backend), key)
    assert (state.key, state.mq) == ("c7", 3)


def test_a_long_backlog_of_mq_is_not_searched_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_scan, "MAIN_RECORDS_MAX", 1)
    shop = Shop(partitions=2, shards=1)
    shop.push("c7", 1)
    shop.topic.scale(4)
    shop.push("c7", 2)
    shop.owner().reopen()
    state = state_of(shop)
    assert (state.mq, state.complete) == (1, False)
