"""Subscriptions are created with their queues, and leave nothing behind when they are deleted."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tailrace.backend.contract import (
    FENCES,
    Backend,
    Change,
    Transaction,
    raise_fence,
)
from tailrace.delivery.filter.message_filter import MessageFilter
from tailrace.delivery.retry import Retry
from tailrace.errors import (
    BackendUnavailable,
    Error,
    Fenced,
    InvalidName,
    InvalidValue,
    SubscriptionExists,
    UnknownSubscription,
    UnknownTopic,
)
from tailrace.group.store.start import parse_start
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.subscription.shard.attempts import Attempts, Origin, attempts_key, encode_attempts
from tailrace.subscription.shard.permits import encode_permits, permits_key
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.definition import NewSubscription, find_subscription
from tailrace.subscription.store.lifecycle import (
    create_subscription,
    delete_subscription,
    read_subscription,
    subscription_names,
    update_settings,
)
from tailrace.subscription.store.names import (
    REQUESTS,
    dead_letter_queue,
    retry_queue,
    shard_fence,
    worker_group,
)
from tailrace.subscription.store.pause import find_pause, pause
from tailrace.subscription.store.shared_names import PIPELINES
from tailrace.subscription.store.takeover import read_ledgers
from tailrace.topic.consumers import consumers
from tests.support.faulty_backend import FaultyBackend
from tests.support.interleaved_store import InterleavedBackend
from tests.support.topics import push

RETRY = Retry(3, first="1s", max="1m")


def create(backend: Backend, name: str = "crm", *, exist_ok: bool = False, **options: Any) -> Any:
    new = NewSubscription(options.pop("topic", "orders"), options.pop("retry", RETRY), **options)
    return create_subscription(backend, name, new, now_ms=5, exist_ok=exist_ok)


def marks(backend: Backend, name: str = "crm") -> dict[str, int]:
    """Return the stored low-water mark of each partition of MQ that is not 0."""
    stored = read_subscription(backend, name)
    partitions = [
        where for shard in range(stored.definition.shards) for where in stored.streams(shard).mq
    ]
    ledgers = read_ledgers(backend, name, partitions)
    return {str(where): held.mark for where, held in ledgers.items() if held.mark}


def entries(backend: Backend) -> list[str]:
    """Return the keys of all store entries that name the subscription, but for its own fence."""
    keys = [entry.key for entry in backend.store.scan("")]
    return [key for key in keys if "crm" in key and key != f"{FENCES}subscription/crm"]


# Creation.


def test_a_subscription_is_created_with_its_queues(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=4)
    stored = create(backend, filter="header.country == 'IN'")
    assert stored.definition.shards == 4
    assert stored.definition.retry == RETRY
    assert stored.definition.filter == "header.country == 'IN'"
    assert subscription_names(backend) == ["crm"]
    for topic in ("orders", retry_queue("crm"), dead_letter_queue("crm")):
        assert consumers(backend.store, topic) == [worker_group("crm")]


def test_an_existing_subscription_is_refused_or_opened_if_it_is_the_same(
    hub: Hub, backend: Backend
) -> None:
    hub.create_topic("orders", partitions=4)
    stored = create(backend)
    with pytest.raises(SubscriptionExists) as refused:
        create(backend)
    assert refused.value.differences == []
    assert create(backend, exist_ok=True) == stored
    assert create(backend, exist_ok=True, shards=4) == stored


def test_the_differences_of_an_existing_subscription_are_listed(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=4)
    hub.create_topic("refunds", partitions=4)
    create(backend)
    with pytest.raises(SubscriptionExists) as refused:
        create(
            backend,
            exist_ok=True,
            topic="refunds",
            shards=2,
            retry=Retry(None, first="2s", max="1m"),
            policy=OnDeadLetter.CONTINUE,
            filter="key == 'c7'",
            rq_partitions=8,
        )
    assert refused.value.differences == [
        "its topic is 'orders', not 'refunds'",
        "its number of shards is 4, not 2",
        "its retry policy is attempts 3, first 1s, max 1m, not no last attempt, first 2s, max 1m",
        "its on_dead_letter is block, not continue",
        "its filter is none, not \"key == 'c7'\"",
        "its rq_partitions is that of the topic, not 8",
    ]


def test_a_topic_that_was_deleted_and_created_again_is_another_topic(
    hub: Hub, backend: Backend
) -> None:
    hub.create_topic("orders", partitions=1)
    create(backend)
    hub.delete_topic("orders")
    with pytest.raises(SubscriptionExists, match="'orders' was deleted"):
        create(backend, exist_ok=True)
    hub.create_topic("orders", partitions=1)
    with pytest.raises(SubscriptionExists, match="was deleted, and created again"):
        create(backend, exist_ok=True)
    with pytest.raises(UnknownTopic, match="delete the subscription") as error:
        find_subscription(backend, "crm")
    assert error.value.subscription == "crm"
    delete_subscription(backend, "crm")
    create(backend)


@pytest.mark.parametrize("name", ["", "a/b", ".a", "a b", "x" * 201, "-a"])
def test_names_are_those_of_topics(hub: Hub, backend: Backend, name: str) -> None:
    hub.create_topic("orders", partitions=1)
    with pytest.raises(InvalidName, match="valid: 1 to 200 characters"):
        create(backend, name)


def test_the_longest_name_is_valid(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    stored = create(backend, "x" * 200)
    assert stored.rq.definition.pointer == 0
    delete_subscription(backend, "x" * 200)


def test_a_subscription_needs_a_topic_that_exists_and_is_no_queue(
    hub: Hub, backend: Backend
) -> None:
    hub.create_topic("orders", partitions=1)
    with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
        create(backend, topic="order")
    create(backend)
    with pytest.raises(InvalidValue, match="not a queue of a subscription"):
        create(backend, "other", topic=retry_queue("crm"))
    assert subscription_names(backend) == ["crm"]


def test_a_number_of_shards_that_does_not_divide_the_partitions_needs_uneven(
    hub: Hub, backend: Backend
) -> None:
    hub.create_topic("orders", partitions=4)
    with pytest.raises(InvalidValue, match=r"for example 4, 2, 1 · any other: uneven=True"):
        create(backend, shards=3)
    assert create(backend, shards=3, uneven=True).definition.shards == 3
    for wrong in (0, 5, 2.5, "2", True):
        with pytest.raises(InvalidValue, match="1 to 4"):
            create(backend, "other", shards=wrong, uneven=True)


def test_on_a_topic_that_was_scaled_all_keys_keep_one_shard_by_default(
    hub: Hub, backend: Backend
) -> None:
    topic = hub.create_topic("orders", partitions=4)
    topic.scale(12)
    topic.add_storage_topic(24)
    stored = create(backend)
    assert (stored.definition.shards, stored.definition.opened) == (4, 2)
    assert stored.rq.definition.shape == topic.view.definition.storage[1]
    with pytest.raises(InvalidValue, match="disagree about key"):
        create(backend, "other", shards=12)


def test_delays_are_stored_in_whole_milliseconds(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    stored = create(backend, retry=Retry(1, first="10us", max="1500us"))
    assert (stored.definition.first_ms, stored.definition.max_ms) == (1, 2)
    assert stored.definition.retry == Retry(1, first="1ms", max="2ms")


# Where it starts.


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


def test_a_creation_that_is_interrupted_leaves_nothing_to_a_later_one() -> None:
    backend = FaultyBackend()
    hub = Hub.from_backend(backend)
    push(hub.create_topic("orders", partitions=1), 5, keys=5)

    def end(transaction: Transaction) -> None:
        raise BackendUnavailable("the process ended")

    backend.after = end
    with pytest.raises(BackendUnavailable):
        create(backend, start=parse_start("latest"))
    backend.after = lambda transaction: None
    assert subscription_names(backend) == []
    create(backend)
    assert marks(backend) == {}


def test_a_creation_that_is_overtaken_by_another_does_not_write_its_start() -> None:
    backend = FaultyBackend()
    hub = Hub.from_backend(backend)
    push(hub.create_topic("orders", partitions=1), 5, keys=5)

    def overtake(transaction: Transaction) -> None:
        backend.before = lambda transaction: None
        create(backend)

    backend.before = overtake
    with pytest.raises(SubscriptionExists):
        create(backend, start=parse_start("latest"))
    assert marks(backend) == {}


def test_a_pipeline_that_is_registered_meanwhile_prevents_the_creation(
    hub: Hub, backend: Backend
) -> None:
    hub.create_topic("orders", partitions=1)
    register = Change(writes={f"{PIPELINES}crm": b"{}"})
    racing: Any = InterleavedBackend(
        backend, f"{PIPELINES}crm", lambda: backend.store.commit(register)
    )
    with pytest.raises(InvalidName, match="there is a pipeline 'crm'"):
        create(racing)
    assert subscription_names(backend) == []


def test_of_many_creations_at_the_same_time_one_succeeds(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def attempt() -> None:
        barrier.wait()
        try:
            create(backend)
            outcomes.append("created")
        except SubscriptionExists:
            outcomes.append("exists")

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["created", "exists", "exists", "exists"]


# Changes.


def test_a_filter_that_does_not_parse_is_refused_and_changes_nothing(
    hub: Hub, backend: Backend
) -> None:
    push(hub.create_topic("orders", partitions=1), 1)
    with pytest.raises(InvalidValue, match="filter, character 5: '=' is not an operator"):
        create(backend, filter="key = 'a'")
    assert subscription_names(backend) == []
    create(backend, filter="key == 'a'")
    with pytest.raises(InvalidValue, match="filter, character 5"):
        update_settings(backend, "crm", retry=RETRY, filter="key = 'b'")
    stored = read_subscription(backend, "crm").definition
    assert stored.filter == "key == 'a'"
    found = stored.message_filter
    assert isinstance(found, MessageFilter)
    assert found.matches(b"a", {})


def test_the_retry_policy_and_the_filter_may_change(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    before = create(backend)
    update_settings(backend, "crm", retry=Retry(None, first="2s", max="5s"), filter="key == 'a'")
    after = read_subscription(backend, "crm")
    assert after.definition.retry == Retry(None, first="2s", max="5s")
    assert after.definition.filter == "key == 'a'"
    assert after.definition.identity == before.definition.identity
    with pytest.raises(UnknownSubscription, match="did you mean 'crm'"):
        update_settings(backend, "crn", retry=RETRY, filter=None)


def test_settings_that_are_the_same_are_not_written(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    stored = create(backend)
    update_settings(backend, "crm", retry=RETRY, filter=None)
    assert read_subscription(backend, "crm").version == stored.version


# Deletion.


def _fill(backend: Backend) -> None:
    """Store everything that a subscription may have."""
    group, where = worker_group("crm"), Partition("orders", 0, 0)
    fence = raise_fence(backend.store, shard_fence("crm", "0.0", 0).name)
    failed = encode_attempts(Attempts(1, error="no stock"))
    table = {
        permits_key("crm", where): encode_permits([9]),
        attempts_key("crm", Origin(where, 4)): failed,
    }
    backend.commit(Transaction(table=table, fence=fence))
    pause(backend, "crm", "deploy", "ops", 1)
    others = [f"{REQUESTS}crm/1", f"group-grant/{group}/0.0", f"group-leader/{group}"]
    others.append(f"group-member/{group}/w1")
    backend.store.commit(Change(writes=dict.fromkeys(others, b"{}")))


def test_a_deleted_subscription_leaves_nothing(hub: Hub, backend: Backend) -> None:
    push(hub.create_topic("orders", partitions=1), 5, keys=5)
    create(backend, start=parse_start("latest"))
    _fill(backend)
    delete_subscription(backend, "crm")
    assert entries(backend) == []
    assert hub.topics() == ["orders"]
    assert consumers(backend.store, "orders") == []
    for table in ("ledger/subscription:crm", "subscription-permits/crm"):
        assert backend.table.scan(table) == []
    assert backend.table.scan("subscription-attempts/crm") == []
    with pytest.raises(UnknownSubscription):
        delete_subscription(backend, "crm")
    create(backend)
    assert marks(backend) == {}
    assert find_pause(backend, "crm") is None


def test_the_owners_of_a_deleted_subscription_cannot_write(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    create(backend)
    fence = raise_fence(backend.store, shard_fence("crm", "0.0", 0).name)
    delete_subscription(backend, "crm")
    create(backend)
    key = permits_key("crm", Partition("orders", 0, 0))
    with pytest.raises(Fenced):
        backend.commit(Transaction(table={key: b"12345678"}, fence=fence))


def test_a_deletion_that_is_interrupted_is_finished_by_the_next() -> None:
    backend = FaultyBackend()
    hub = Hub.from_backend(backend)
    push(hub.create_topic("orders", partitions=1), 5, keys=5)
    create(backend, start=parse_start("latest"))
    _fill(backend)

    def end(transaction: Transaction) -> None:
        raise BackendUnavailable("the process ended")

    backend.before = end
    with pytest.raises(BackendUnavailable):
        delete_subscription(backend, "crm")
    assert subscription_names(backend) == []
    assert entries(backend) == []
    backend.before = lambda transaction: None
    delete_subscription(backend, "crm")
    assert backend.table.scan("ledger/subscription:crm") == []
    with pytest.raises(UnknownSubscription):
        delete_subscription(backend, "crm")


def test_a_late_deletion_does_not_touch_a_new_subscription() -> None:
    backend = FaultyBackend()
    hub = Hub.from_backend(backend)
    push(hub.create_topic("orders", partitions=1), 5, keys=5)
    create(backend, start=parse_start("latest"))
    end = marks(backend)

    def create_again(transaction: Transaction) -> None:
        backend.before = lambda transaction: None
        create(backend, start=parse_start("latest"))

    backend.before = create_again
    delete_subscription(backend, "crm")
    assert marks(backend) == end
    assert subscription_names(backend) == ["crm"]


def test_a_subscription_that_is_deleted_while_it_is_read_is_not_found(
    hub: Hub, backend: Backend
) -> None:
    hub.create_topic("orders", partitions=1)
    create(backend)
    racing: Any = InterleavedBackend(
        backend, "subscription/crm", lambda: delete_subscription(backend, "crm")
    )
    assert find_subscription(racing, "crm") is None


def test_a_subscription_whose_topic_was_deleted_can_be_deleted(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    create(backend)
    hub.delete_topic("orders")
    with pytest.raises(Error):
        read_subscription(backend, "crm")
    delete_subscription(backend, "crm")
    assert hub.topics() == []
    assert entries(backend) == []
