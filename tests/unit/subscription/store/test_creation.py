"""A subscription is created with its queues, once, whatever happens meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tailrace.backend.contract import Backend, Change, Transaction
from tailrace.delivery.retry import Retry
from tailrace.errors import (
    BackendUnavailable,
    InvalidName,
    InvalidValue,
    SubscriptionExists,
    UnknownTopic,
)
from tailrace.group.store.start import parse_start
from tailrace.hub.hub import Hub
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.definition import find_subscription
from tailrace.subscription.store.lifecycle import delete_subscription, subscription_names
from tailrace.subscription.store.names import dead_letter_queue, retry_queue, worker_group
from tailrace.subscription.store.shared_names import PIPELINES
from tailrace.topic.consumers import consumers
from tests.support.faulty_backend import FaultyBackend
from tests.support.interleaved_store import InterleavedBackend
from tests.support.topics import push
from tests.unit.subscription.store.stored_subscriptions import RETRY, create, marks


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
