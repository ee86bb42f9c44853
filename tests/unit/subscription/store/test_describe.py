"""A subscription is described with its workers and what waits in its queues."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Backend, Change
from tailrace.clock import utc_time
from tailrace.delivery.outcome import SUCCESS
from tailrace.errors import UnknownSubscription
from tailrace.group.store.definition import group_names
from tailrace.group.store.describe import list_groups
from tailrace.hub.hub import Hub
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.backlog import BLOCKED_SHOWN, NO_BACKLOG
from tailrace.subscription.store.describe import describe
from tailrace.subscription.store.names import REQUESTS
from tailrace.subscription.store.pause import pause
from tests.support.shards import NAME, REJECTED, Shop, fails, grant, stored, subscribe
from tests.support.topics import push


def test_a_description_has_the_definition(hub: Hub, backend: Backend) -> None:
    push(hub.create_topic("orders", partitions=4), 10, keys=10)
    definition = subscribe(hub, shards=2).definition
    info = describe(backend, NAME)
    assert (info.name, info.topic, info.topic_deleted) == (NAME, "orders", False)
    assert (info.shards, info.generation, info.opened, info.closed) == (2, 0, 1, None)
    assert (info.retry, info.on_dead_letter) == (definition.retry, OnDeadLetter.BLOCK)
    assert (info.start, info.filter, info.paused) == ("earliest", None, None)
    assert (info.workers, info.owners, info.unattended) == ((), (None, None), (0, 1))
    assert (info.backlog.mq, info.backlog.rq, info.backlog.dlq) == (10, 0, 0)
    with pytest.raises(UnknownSubscription):
        describe(backend, "crn")


def test_what_waits_is_counted_by_shard_and_by_key() -> None:
    shop = Shop(partitions=1, attempts=None)
    shop.topic.push(1, key="a", timestamp=utc_time(5000))
    shop.push("a", 2, 3)
    shop.push("bad", 4, 5)
    shop.push("worse", 6)
    shop.push("fine", 7)
    shop.owner().run(
        lambda value: REJECTED if value in (4, 6) else fails(1)(value) if value == 1 else SUCCESS
    )
    shop.push("fine", 8)
    backlog = describe(shop.backend, NAME).backlog
    (shard,) = backlog.shards
    assert (shard.mq, shard.rq, shard.dlq) == (backlog.mq, backlog.rq, backlog.dlq) == (1, 3, 3)
    assert (backlog.retrying_keys, backlog.blocked_keys, backlog.behind) == (1, 2, 1)
    assert backlog.retrying_since == utc_time(1_700_000_000_000)
    assert [(each.key, each.behind, each.head.origin) for each in backlog.blocked] == [
        ("bad", 1, "orders/0.0@3"),
        ("worse", 0, "orders/0.0@5"),
    ]
    assert backlog.oldest == utc_time(5000)


def test_only_some_of_many_blocked_keys_are_named() -> None:
    shop = Shop()
    for number in range(BLOCKED_SHOWN + 5):
        shop.push(f"k{number}", number)
    shop.owner().run(lambda value: REJECTED)
    backlog = describe(shop.backend, NAME).backlog
    assert backlog.blocked_keys == BLOCKED_SHOWN + 5
    assert [each.key for each in backlog.blocked] == [f"k{n}" for n in range(BLOCKED_SHOWN)]


def test_under_continue_dead_letters_block_no_key() -> None:
    shop = Shop(policy=OnDeadLetter.CONTINUE)
    shop.push("a", 1)
    shop.owner().run(lambda value: REJECTED)
    backlog = describe(shop.backend, NAME).backlog
    assert (backlog.dlq, backlog.blocked_keys, backlog.blocked, backlog.oldest) == (1, 0, (), None)


def test_messages_without_a_key_block_no_key() -> None:
    shop = Shop()
    shop.push(None, 1)
    shop.owner().run(lambda value: REJECTED)
    backlog = describe(shop.backend, NAME).backlog
    assert (backlog.dlq, backlog.blocked_keys) == (1, 0)


def test_workers_are_shown_with_their_shards_and_not_as_a_group() -> None:
    shop = Shop(partitions=4, shards=4)
    grant(shop.backend, "w1", 0, 2)
    hold = grant(shop.backend, "w2", 1)
    info = describe(shop.backend, NAME)
    assert [(each.id, each.process, each.shards) for each in info.workers] == [
        ("w1", "process 7 of w1", (0, 2)),
        ("w2", "process 7 of w2", (1,)),
    ]
    assert [None if each is None else each.worker for each in info.owners] == [
        "w1",
        "w2",
        "w1",
        None,
    ]
    assert info.unattended == (3,)
    hold.release()
    info = describe(shop.backend, NAME)
    assert [each.id for each in info.workers] == ["w1"]
    assert info.unattended == (1, 3)
    assert group_names(shop.backend) == []
    assert list_groups(shop.backend) == []


def test_a_storage_topic_of_the_next_generation_is_shown() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.push("a", 1)
    shop.topic.scale(6)
    shop.push("a", 2)
    shop.owner(0).reopen()
    info = describe(shop.backend, NAME)
    assert info.opened == 1
    assert info.backlog.mq == 1
    assert info.closed is not None
    assert (info.closed.storage, info.closed.partitions, info.closed.waiting) == (1, 6, 1)
    assert info.closed.shards == (1,)


def test_a_storage_topic_that_the_next_worker_opens_is_not_closed() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.push("a", 1)
    shop.topic.scale(12)
    shop.push("a", 2)
    info = describe(shop.backend, NAME)
    assert (info.opened, info.closed) == (2, None)
    assert info.backlog.mq == 2


def test_pauses_and_pending_requests_are_shown() -> None:
    shop = Shop()
    pause(shop.backend, NAME, "bad deploy", "ops", 5)
    shop.backend.store.commit(Change(writes={f"{REQUESTS}{NAME}/1": b"{}"}))
    info = describe(shop.backend, NAME)
    assert info.paused is not None
    assert (info.paused.reason, info.requests) == ("bad deploy", 1)


def test_a_subscription_whose_topic_was_deleted_is_shown_without_its_backlog() -> None:
    shop = Shop()
    shop.push("a", 1)
    stored(shop.backend)
    Hub.from_backend(shop.backend).delete_topic("orders")
    info = describe(shop.backend, NAME)
    assert info.topic_deleted
    assert info.backlog is NO_BACKLOG


def test_a_dead_letter_that_arrives_meanwhile_is_not_one_that_blocks_no_key() -> None:
    shop = Shop(partitions=1)
    shop.push("bad", 1)
    shop.owner().run(lambda value: REJECTED)
    shop.push("fine", 2)

    class BusyLog:
        """The log while a worker runs: a letter arrives before the messages are counted."""

        def __getattr__(self, name: str) -> Any:
            return getattr(shop.backend.log, name)

        def amount(self, *where: Any) -> Any:
            if not describe(shop.backend, NAME).backlog.behind:
                shop.push("bad", 3)
                shop.owner().run(lambda value: SUCCESS)
            return shop.backend.log.amount(*where)

    class BusyBackend:
        log = BusyLog()

        def __getattr__(self, name: str) -> Any:
            return getattr(shop.backend, name)

    busy: Any = BusyBackend()
    backlog = describe(busy, NAME).backlog
    assert (backlog.dlq, backlog.blocked_keys, backlog.behind, backlog.aside) == (2, 1, 0, 0)


@pytest.mark.parametrize(("policy", "aside"), [(OnDeadLetter.BLOCK, 1), (OnDeadLetter.CONTINUE, 3)])
def test_dead_letters_that_block_no_key_are_counted(policy: OnDeadLetter, aside: int) -> None:
    shop = Shop(partitions=1, policy=policy)
    shop.push("bad", 1, 2)
    shop.push(None, 3)
    shop.owner().run(lambda value: REJECTED)
    assert describe(shop.backend, NAME).backlog.aside == aside
