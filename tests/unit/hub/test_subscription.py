"""Subscriptions in the Python API: created, opened, changed, paused and deleted."""

from __future__ import annotations

import inspect
import queue
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
import pyarrow as pa
import pytest

import tailrace
import tailrace.aio
from tailrace.delivery.retry import Retry
from tailrace.errors import (
    InvalidName,
    InvalidValue,
    SubscriptionExists,
    TopicTypeMismatch,
    UnknownSubscription,
    UnknownTopic,
)
from tailrace.group.store.history import read_history
from tailrace.hub.endpoint import DeliveryOptions
from tailrace.hub.hub import Hub
from tailrace.hub.subscription import SubscriptionOptions
from tailrace.message import Position
from tailrace.operations.subscription import changes
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.store.group_state import GroupStates
from tailrace.subscription.store.key_state import KeyStatus
from tailrace.subscription.store.names import SUBSCRIPTIONS, worker_group
from tailrace.subscription.store.pause import find_pause
from tailrace.subscription.worker.options import StartOptions
from tests.support.interleaved_store import InterleavedBackend
from tests.support.waiting import DEADLINE_S


class Order(msgspec.Struct):
    """An order."""

    id: int


@pytest.mark.parametrize(
    ("options", "function"),
    [
        (StartOptions, tailrace.Subscription.start),
        (SubscriptionOptions, tailrace.Hub.create_subscription),
    ],
)
def test_the_types_of_options_are_those_of_the_function(
    options: type[Any], function: Callable[..., object]
) -> None:
    named = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    known = {"Worker": tailrace.Worker}  # imported for type checkers only
    hints, expected = get_type_hints(options), get_type_hints(function, None, known)
    if "options" in expected:
        expected |= get_type_hints(DeliveryOptions)
        named += get_type_hints(DeliveryOptions)
    assert hints == {name: expected[name] for name in named}


def test_dead_letters_have_the_same_members_awaited() -> None:
    def members(kind: type[Any]) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert members(tailrace.aio.DeadLetters) == members(tailrace.DeadLetters)


@pytest.fixture
def crm(hub: Hub) -> tailrace.Subscription:
    hub.create_topic("orders", partitions=4)
    return hub.create_subscription("crm", topic="orders")


def test_a_subscription_is_created_opened_and_listed(hub: Hub, crm: tailrace.Subscription) -> None:
    assert (crm.name, crm.topic) == ("crm", "orders")
    assert hub.subscription("crm").definition == crm.definition
    assert hub.subscriptions() == ["crm"]
    assert hub.groups() == []
    assert repr(crm) == f"<Subscription crm of {hub.backend.name}>"


def test_it_has_eight_attempts_and_blocks_keys_with_dead_letters_by_default(
    crm: tailrace.Subscription,
) -> None:
    assert crm.definition.retry == Retry(8, first="1s", max="10m")
    assert crm.definition.policy is OnDeadLetter.BLOCK
    assert crm.definition.shards == 4


def test_options_are_checked_when_it_is_created(hub: Hub, crm: tailrace.Subscription) -> None:
    with pytest.raises(InvalidValue, match="valid: block, continue"):
        hub.create_subscription("other", topic="orders", on_dead_letter="stop")
    with pytest.raises(InvalidValue, match="'earliest', 'latest', an aware datetime"):
        hub.create_subscription("other", topic="orders", start=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="a multiple of the number of shards"):
        hub.create_subscription("other", topic="orders", rq_partitions=6)
    with pytest.raises(InvalidName, match="valid:"):
        hub.create_subscription("a/b", topic="orders")
    with pytest.raises(UnknownTopic):
        hub.create_subscription("other", topic="order")
    assert hub.subscriptions() == ["crm"]


def test_an_unknown_subscription_is_named_with_the_nearest_one(
    hub: Hub, crm: tailrace.Subscription
) -> None:
    with pytest.raises(UnknownSubscription, match="did you mean 'crm'"):
        hub.subscription("crn")
    with pytest.raises(InvalidName):
        hub.subscription("a/b")


def test_with_exist_ok_the_same_subscription_is_opened(
    hub: Hub, crm: tailrace.Subscription
) -> None:
    again = hub.create_subscription("crm", topic="orders", start="latest", exist_ok=True)
    assert again.definition == crm.definition
    with pytest.raises(SubscriptionExists, match="its on_dead_letter is block, not continue"):
        hub.create_subscription("crm", topic="orders", on_dead_letter="continue", exist_ok=True)
    with pytest.raises(SubscriptionExists, match="exist_ok=True"):
        hub.create_subscription("crm", topic="orders")


def test_a_pause_needs_a_reason_and_is_in_the_history(hub: Hub, crm: tailrace.Subscription) -> None:
    with pytest.raises(InvalidValue, match="reason"):
        crm.pause(" ")
    assert crm.pause("bad deploy")
    assert not crm.pause("again")
    paused = find_pause(hub.backend, "crm")
    assert paused is not None
    assert paused.reason == "bad deploy"
    assert "@" in paused.by
    assert crm.resume()
    assert not crm.resume()
    lines = read_history(hub.backend, worker_group("crm"))
    assert [(line.what, line.why) for line in lines] == [
        ("pause", "bad deploy"),
        ("resume", "it was paused: bad deploy"),
    ]


def test_an_update_changes_only_what_is_given(crm: tailrace.Subscription) -> None:
    crm.update(filter="key == 'c7'")
    assert crm.definition.filter == "key == 'c7'"
    assert crm.definition.retry == Retry(8, first="1s", max="10m")
    crm.update(retry=Retry(2, first="2s", max="2s"))
    assert crm.definition.filter == "key == 'c7'"
    assert crm.definition.retry == Retry(2, first="2s", max="2s")
    crm.update(filter="")
    assert crm.definition.filter is None


@pytest.mark.parametrize(
    ("update", "read"),
    [
        # The first read is that of the subscription itself.
        (lambda hub, **new: hub.subscription("crm").update(**new), 2),
        (lambda hub, **new: changes.update(hub, "crm", **new), 2),
        (lambda hub, **new: changes.update(hub, "crm", **new), 3),
    ],
    ids=["python", "command", "command, later"],
)
def test_an_update_of_the_filter_keeps_a_concurrent_one_of_the_retry_policy(
    hub: Hub, crm: tailrace.Subscription, update: Callable[..., object], read: int
) -> None:
    retry = Retry(2, first="2s", max="2s")
    racing: Any = InterleavedBackend(
        hub.backend, SUBSCRIPTIONS + "crm", lambda: crm.update(retry=retry), read=read
    )
    update(Hub.from_backend(racing), filter="key == 'c7'")
    assert crm.definition.filter == "key == 'c7'"
    assert crm.definition.retry == retry


def test_a_deleted_subscription_is_unknown_and_its_topic_stays(
    hub: Hub, crm: tailrace.Subscription
) -> None:
    crm.delete()
    assert hub.topics() == ["orders"]
    assert hub.subscriptions() == []
    with pytest.raises(UnknownSubscription):
        crm.pause("why")
    with pytest.raises(UnknownSubscription):
        crm.delete()


def test_it_is_described_with_its_queues_and_keys(hub: Hub, crm: tailrace.Subscription) -> None:
    receipt = hub.topic("orders").push(1, key="c7")
    assert crm.describe().backlog.mq == 1
    assert crm.explain("c7").state is KeyStatus.UNATTENDED
    assert crm.group_state("c7") == GroupStates(None, None)
    place = crm.message(receipt.id)
    assert place.message is not None
    assert (place.message.queue, place.key) == (Queue.MQ, "c7")
    assert crm.message(Position.parse(receipt.id)) == place


@pytest.mark.parametrize("queue", ["tailrace.retry-queue.crm", "tailrace.dead-letter-queue.crm"])
def test_its_queues_may_be_read_but_not_changed(
    hub: Hub, crm: tailrace.Subscription, queue: str
) -> None:
    topic = hub.topic(queue)
    assert list(topic.batches(0, 0)) == []
    changes: list[Callable[[], object]] = [
        lambda: topic.push(1),
        lambda: topic.push_many([("a", 1)]),
        lambda: topic.append(pa.record_batch({"value": [b"1"]})),
        topic.producer,
        lambda: hub.transaction().__enter__().push(queue, 1),
        lambda: topic.scale(12),
        lambda: topic.plan_scale(12),
        lambda: topic.add_storage_topic(12),
        topic.switch_produce,
        lambda: hub.delete_topic(queue),
    ]
    for change in changes:
        with pytest.raises(InvalidValue, match="tailrace subscription show crm"):
            change()


def test_a_subscription_stays_when_its_topic_is_deleted(
    hub: Hub, crm: tailrace.Subscription
) -> None:
    hub.delete_topic("orders")
    assert crm.describe().topic_deleted
    for use in (lambda: crm.explain("c7"), lambda: crm.start(lambda delivery: None)):
        with pytest.raises(UnknownTopic, match="tailrace subscription delete crm"):
            use()
    crm.delete()
    assert hub.topics() == []


def test_a_handler_gets_values_of_the_type_in_its_annotation(hub: Hub) -> None:
    orders = hub.create_topic("orders", Order, partitions=1)
    crm = hub.create_subscription("crm", topic="orders")
    orders.push(Order(7), key="a")
    values: queue.SimpleQueue[object] = queue.SimpleQueue()

    def handle(delivery: tailrace.Delivery[Order]) -> None:
        values.put(delivery.value)

    with crm.start(handle):
        assert values.get(timeout=DEADLINE_S) == Order(7)


def test_a_handler_that_cannot_work_is_refused_at_the_start(hub: Hub) -> None:
    hub.create_topic("orders", Order, partitions=1)
    crm = hub.create_subscription("crm", topic="orders")

    def wrong_type(delivery: tailrace.Delivery[int]) -> None: ...

    def too_many(delivery: object, more: object) -> None: ...

    with pytest.raises(TopicTypeMismatch, match="Order"):
        crm.start(wrong_type)
    with pytest.raises(TopicTypeMismatch):
        crm.start(print, type=int)
    with pytest.raises(InvalidValue, match="cannot be called with one argument"):
        crm.start(too_many)  # type: ignore[arg-type]


def test_the_workers_of_a_deleted_topic_end_and_others_of_the_process_go_on(hub: Hub) -> None:
    orders, refunds = (hub.create_topic(name, partitions=1) for name in ("orders", "refunds"))
    values: queue.SimpleQueue[object] = queue.SimpleQueue()

    def handle(delivery: tailrace.Delivery[Any]) -> None:
        values.put(delivery.value)

    crm = hub.create_subscription("crm", topic="orders")
    mailer = hub.create_subscription("mailer", topic="refunds")
    with crm.start(handle) as ending, mailer.start(handle):
        orders.push("of orders")
        assert values.get(timeout=DEADLINE_S) == "of orders"
        hub.delete_topic("orders")
        with pytest.raises(UnknownTopic, match="tailrace subscription delete crm"):
            ending.wait(DEADLINE_S)
        refunds.push("of refunds")
        assert values.get(timeout=DEADLINE_S) == "of refunds"
