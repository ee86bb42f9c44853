"""Messages that become dead letters of a group after their last attempt."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import Retry
from tailrace.backend.contract import Transaction, raise_fence
from tailrace.delivery.dead_letters.letter import DeadLetter
from tailrace.delivery.dead_letters.mailbox import Mailbox
from tailrace.delivery.delivery import Delivery
from tailrace.errors import BackendUnavailable, InvalidValue
from tailrace.group.store.dead_letters import dead_letter_topic
from tailrace.group.store.definition import unit_fence
from tailrace.group.store.history import read_history
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.operations.dead_letters.resolve import redeliver
from tailrace.subscription.store.names import retry_queue
from tailrace.topic.view import View, find
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.faulty_backend import FaultyBackend, once, unknown
from tests.support.groups import GROUP, unacked_values
from tests.support.topics import all_messages, push
from tests.support.waiting import until

TWICE = Retry(attempts=2, first="1ms")


class Worker:
    """A handler that refuses some values, and the values that it handled."""

    def __init__(self, *refused: int) -> None:
        self.refused = set(refused)
        self.handled: list[int] = []

    def __call__(self, delivery: Delivery[Any]) -> None:
        if delivery.value in self.refused:
            raise ValueError(f"no stock for {delivery.value}")
        self.handled.append(delivery.value)

    def run(self, topic: Topic[Any], group: str = GROUP) -> None:
        """Handle all messages of the topic that the group has not acknowledged."""
        self.handled.clear()
        consumer = topic.tail(group=group, until="end")
        consumer.run(self, retry=TWICE, on_failed="dead-letter")


def letters(topic: Topic[Any]) -> list[DeadLetter]:
    backend, name = topic.view.backend, dead_letter_topic(GROUP)
    stored = find(backend, name)
    return [] if stored is None else list(Mailbox(View(backend, name, stored), GROUP).waiting())


def test_a_message_becomes_a_dead_letter_with_its_error_and_its_key_continues(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 20, keys=5)
    worker = Worker(4)
    consumer = consume(topic, runtime, until="end")
    consumer.run(worker, retry=TWICE, on_failed="dead-letter")
    assert sorted(worker.handled) == [n for n in range(20) if n != 4]
    assert unacked_values(topic) == []
    (letter,) = letters(topic)
    assert (letter.record.key, letter.record.value) == (b"k4", b"4")
    assert (letter.consumer, letter.error) == (GROUP, "ValueError: no stock for 4")
    assert letter.origin.startswith("orders/0.")
    assert "dead-letter" in [line.what for line in read_history(topic.view.backend, GROUP)]


@pytest.fixture
def faulty() -> FaultyBackend:
    return FaultyBackend()


@pytest.fixture
def orders(faulty: FaultyBackend) -> Topic[Any]:
    """A topic of one partition with five messages."""
    orders = Hub.from_backend(faulty).create_topic("orders", partitions=1)
    push(orders, 5)
    return orders


def test_letter_and_acknowledgement_are_one_transaction_under_the_fence_of_the_owner(
    faulty: FaultyBackend, orders: Topic[Any]
) -> None:
    seen: list[Transaction] = []
    faulty.before = lambda each: seen.append(each) if _has_letter(each) else None
    Worker(2).run(orders)
    (transaction,) = seen
    assert transaction.fence is not None
    assert transaction.fence.name == unit_fence(GROUP, "orders/0.0")
    assert any(key.table == f"ledger/group:{GROUP}" for key in transaction.table)


def _has_letter(transaction: Transaction) -> bool:
    return any(where.topic == dead_letter_topic(GROUP) for where, _ in transaction.appends)


def test_an_outage_between_a_failure_and_its_letter_loses_and_doubles_nothing(
    faulty: FaultyBackend, orders: Topic[Any]
) -> None:
    left = [BackendUnavailable("full")] * 3

    def fail(transaction: Transaction) -> None:
        if _has_letter(transaction) and left:
            raise left.pop()

    faulty.before = fail
    Worker(2).run(orders)
    assert left == []
    assert [letter.record.value for letter in letters(orders)] == [b"2"]
    assert unacked_values(orders) == []


@pytest.mark.parametrize("stored", [True, False])
def test_a_letter_whose_commit_has_an_unknown_outcome_is_stored_once(
    faulty: FaultyBackend, orders: Topic[Any], stored: bool
) -> None:
    def hook(transaction: Transaction) -> None:
        if _has_letter(transaction):
            fail(transaction)

    fail = once(unknown)
    if stored:
        faulty.after = hook
    else:
        faulty.before = hook
    Worker(2).run(orders)
    assert [letter.record.value for letter in letters(orders)] == [b"2"]
    assert unacked_values(orders) == []


def test_a_stale_owner_stores_no_letter(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 1)
    backend = topic.view.backend

    def refuse(delivery: Delivery[Any]) -> None:
        unit = f"orders/0.{delivery.partition}"
        raise_fence(backend.store, unit_fence(GROUP, unit))
        raise ValueError("no stock")

    consumer = consume(topic, runtime, idle_timeout="50ms")
    consumer.run(refuse, retry=Retry(attempts=1), on_failed="dead-letter")
    assert letters(topic) == []
    assert unacked_values(topic) == [0]


def test_a_redelivered_letter_reaches_its_group_alone_after_its_key_and_names_its_origin(
    orders: Topic[Any], faulty: FaultyBackend
) -> None:
    hub = Hub.from_backend(faulty)
    worker, other = Worker(2), Worker()
    worker.run(orders)
    push(orders, 5, first=5)
    assert redeliver(hub, GROUP, ["orders/0.0@2"]).letters == (f"{dead_letter_topic(GROUP)}/0.0@0",)
    push(orders, 5, first=10)
    worker.refused.clear()
    worker.run(orders)
    assert worker.handled == [5, 6, 7, 8, 9, 2, 10, 11, 12, 13, 14]
    other.run(orders, "printing")
    assert other.handled == list(range(15))
    assert not any(each.headers for each in all_messages(orders))
    (again,) = [each for each in all_messages(orders, control=True) if each.origin]
    assert (again.key, again.value, again.origin) == ("k2", 2, "orders/0.0@2")


def test_a_redelivered_letter_that_fails_again_becomes_a_letter_again(
    orders: Topic[Any], faulty: FaultyBackend
) -> None:
    hub = Hub.from_backend(faulty)
    worker = Worker(2)
    worker.run(orders)
    for _ in range(2):
        redeliver(hub, GROUP, None)
        worker.run(orders)
    (letter,) = letters(orders)
    assert letter.headers["tailrace.origin"] == b"orders/0.0@2"
    assert letter.origin == "orders/0.0@6"


def test_a_redelivered_letter_follows_its_key_to_the_partitions_of_a_scaled_topic(
    orders: Topic[Any], faulty: FaultyBackend
) -> None:
    hub = Hub.from_backend(faulty)
    worker = Worker(2)
    worker.run(orders)
    orders.scale(4)
    push(orders, 10, first=5)
    redeliver(hub, GROUP, None)
    worker.refused.clear()
    worker.run(orders)
    assert sorted(worker.handled) == [2, *range(5, 15)]
    assert [each for each in worker.handled if each % 5 == 2] == [7, 12, 2]


def test_the_error_of_a_letter_may_be_long_and_have_surrogates(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)

    def refuse(_delivery: Delivery[Any]) -> None:
        raise ValueError("no file caf\udce9" + "!" * 10_000)

    consume(topic, runtime, until="end").run(refuse, retry=TWICE, on_failed="dead-letter")
    (letter,) = letters(topic)
    assert letter.error.startswith("ValueError: no file caf\\udce9!!")
    (line,) = [e for e in read_history(topic.view.backend, GROUP) if e.what == "dead-letter"]
    assert len(line.why) < 1100


def test_a_letter_is_redelivered_to_a_topic_that_was_created_again_with_fewer_partitions(
    faulty: FaultyBackend,
) -> None:
    hub = Hub.from_backend(faulty)
    push(hub.create_topic("orders", partitions=8), 20, keys=20)
    worker = Worker(*range(20))
    worker.run(hub.topic("orders"))
    hub.delete_topic("orders")
    orders = hub.create_topic("orders", partitions=1)
    assert len(redeliver(hub, GROUP, None).letters) == 20
    worker.refused.clear()
    worker.run(orders)
    assert sorted(worker.handled) == list(range(20))


def test_a_group_with_a_filter_for_all_topics_does_not_consume_its_own_letters(
    faulty: FaultyBackend, orders: Topic[Any]
) -> None:
    hub = Hub.from_backend(faulty)
    worker = Worker(2)
    for _ in range(2):
        consumer = hub.tail("*", group=GROUP, until="end")
        consumer.run(worker, retry=TWICE, on_failed="dead-letter")
    assert len(letters(orders)) == 1


def test_a_letter_of_a_queue_of_a_subscription_is_not_redelivered(topic: Topic[Any]) -> None:
    hub = Hub.from_backend(topic.view.backend)
    crm = hub.create_subscription("crm", topic=topic.name)
    topic.push(1, key="a")
    with crm.start(Worker(1), concurrency=1):
        until(lambda: crm.describe().backlog.rq)
    queue = hub.topic(retry_queue("crm"))
    Worker(1).run(queue)
    (letter,) = letters(topic)
    with pytest.raises(InvalidValue, match="is a subscription's own"):
        redeliver(hub, GROUP, [letter.position])
    assert redeliver(hub, GROUP, None).letters == ()
    assert len(all_messages(queue)) == 1
