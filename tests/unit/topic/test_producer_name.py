"""Named producers: each message once, over failed commits and restarts."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict

import pytest

from tailrace.backend.contract import Change, Transaction
from tailrace.errors import BackendUnavailable, Fenced, InvalidName
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.topic.producer import Producer
from tailrace.topic.producer_name import ATTEMPTS_MAX
from tests.support.faulty_backend import FaultyBackend, once, unknown
from tests.support.topics import Order, all_values

WAIT_S = 30


def test_a_named_producer_continues_after_its_stored_messages(orders: Topic[Order]) -> None:
    for run in range(3):
        with orders.producer(name="importer") as producer:
            assert producer.last_number == run * 10
            for i in range(producer.last_number, producer.last_number + 10):
                producer.push(Order(i), key="k")
    assert [order.id for order in all_values(orders)] == list(range(30))


def test_producer_names_are_independent(hub: Hub, orders: Topic[Order]) -> None:
    with orders.producer(name="a") as producer:
        producer.push(Order(1))
    assert orders.producer(name="b").last_number == 0
    assert hub.create_topic("others").producer(name="a").last_number == 0


def test_the_older_of_two_with_one_name_is_fenced(hub: Hub, orders: Topic[Order]) -> None:
    older = orders.producer(name="a")
    older.push(Order(1)).result(WAIT_S)
    newer = hub.topic("orders", Order).producer(name="a")
    assert newer.last_number == 1
    refused = older.push(Order(2))
    with pytest.raises(Fenced):
        refused.result(WAIT_S)
    newer.push(Order(3)).result(WAIT_S)
    assert sorted(order.id for order in all_values(orders)) == [1, 3]
    newer.close()


@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("count", [1, 40, 600])
def test_an_unknown_outcome_stores_nothing_twice_and_returns_receipts(
    backend: FaultyBackend, orders: Topic[Order], point: str, count: int
) -> None:
    def push_others_and_lose_the_outcome() -> None:
        for i in range(9):
            orders.push(Order(-1), key=f"k{i}")
        unknown()

    setattr(backend, point, once(push_others_and_lose_the_outcome))
    with orders.producer(name="a", linger="1m") as producer:
        pending = [producer.push(Order(i), key=f"k{i % 9}") for i in range(count)]
    assert [orders.read(*each.result()[1:4]).value.id for each in pending] == list(range(count))
    assert len(all_values(orders)) == count + 9
    assert producer.last_number == count


@pytest.mark.parametrize("point", ["before", "after"])
def test_an_unknown_outcome_is_resolved_over_a_switch(
    backend: FaultyBackend, hub: Hub, orders: Topic[Order], point: str
) -> None:
    def scale_and_lose() -> None:
        hub.topic("orders").scale(12)
        unknown()

    setattr(backend, point, once(scale_and_lose))
    with orders.producer(name="a", linger="1m") as producer:
        pending = [producer.push(Order(i), key=f"k{i % 9}") for i in range(50)]
    assert {each.result().storage for each in pending} == {int(point == "before")}
    assert [orders.read(*each.result()[1:4]).value.id for each in pending] == list(range(50))
    assert len(all_values(orders)) == 50


def test_an_outcome_that_stays_unknown_is_given_up(
    backend: FaultyBackend, orders: Topic[Order]
) -> None:
    backend.before = lambda transaction: unknown()
    producer = orders.producer(name="a")
    with pytest.raises(BackendUnavailable, match="5 attempts"):
        producer.push(Order(1)).result(WAIT_S)
    backend.before = lambda transaction: None
    assert orders.producer(name="a").last_number == 0
    assert all_values(orders) == []


def test_a_producer_that_lost_its_name_does_not_take_it_back_to_resolve_an_outcome(
    backend: FaultyBackend, hub: Hub, orders: Topic[Order]
) -> None:
    def lose_the_name() -> None:
        newer.append(hub.topic("orders", Order).producer(name="a"))
        unknown()

    newer: list[Producer[Order]] = []
    backend.before = once(lose_the_name)
    with pytest.raises(Fenced):
        orders.producer(name="a").push(Order(1)).result(WAIT_S)
    newer[0].push(Order(2)).result(WAIT_S)
    assert all_values(orders) == [Order(2)]


def test_a_name_counts_the_messages_its_last_owner_stored_until_it_was_fenced(
    hub: Hub, orders: Topic[Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    older = orders.producer(name="a")
    raise_fence = hub.backend.store.commit

    def store_one_more(change: Change) -> int:
        older.push(Order(1)).result(WAIT_S)
        return raise_fence(change)

    monkeypatch.setattr(hub.backend.store, "commit", store_one_more)
    assert orders.producer(name="a").last_number == 1
    with pytest.raises(Fenced):
        older.push(Order(2)).result(WAIT_S)


@pytest.mark.parametrize("seed", range(5))
def test_restarts_faults_and_switches_store_each_message_once_in_order(seed: int) -> None:
    chance = random.Random(seed)
    backend = FaultyBackend(gap_every=2)
    hub = Hub.from_backend(backend)
    topic = hub.create_topic("t", bytes)
    total, producer = 300, topic.producer(name="a")

    in_a_row: Counter[int] = Counter()

    def fail_before(transaction: Transaction) -> None:
        producing = threading.get_ident()
        spared = in_a_row[producing] == ATTEMPTS_MAX - 1
        if transaction.appends and not spared and chance.random() < 0.2:
            in_a_row[producing] += 1
            unknown()

    def fail_after(transaction: Transaction) -> None:
        in_a_row[threading.get_ident()] = 0
        if transaction.appends and chance.random() < 0.2:
            unknown()

    backend.before, backend.after = fail_before, fail_after
    number = 0
    while number < total:
        producer.push(b"%d" % number, key=f"k{number % 7}")
        number += 1
        if chance.random() < 0.1:
            producer = hub.topic("t", bytes).producer(name="a", batch_bytes=100)
            number = producer.last_number
        if chance.random() < 0.03:
            hub.topic("t").scale(chance.choice([1, 4, 6, 8, 12]))
    producer.close()
    read = defaultdict(list)
    for value in map(int, all_values(topic)):
        read[value % 7].append(value)
    assert read == {key: list(range(key, total, 7)) for key in range(7)}


def test_a_topic_created_again_has_no_producer_names(hub: Hub, orders: Topic[Order]) -> None:
    with orders.producer(name="a") as producer:
        producer.push(Order(1))
    hub.delete_topic("orders")
    assert hub.create_topic("orders", Order).producer(name="a").last_number == 0


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 300])
def test_a_name_that_is_not_valid_is_refused(orders: Topic[Order], name: str) -> None:
    with pytest.raises(InvalidName, match="producer name"):
        orders.producer(name=name)
