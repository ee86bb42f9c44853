"""Messages that are given back: they come again, in order, and not for ever."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from tailrace.backend.contract import Backend
from tailrace.errors import DeliveryFailed, Error
from tailrace.group.chunk import Fate
from tailrace.group.deliveries import Deliveries
from tailrace.group.delivery import Delivery
from tailrace.group.holding import Holding
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.settings import HubSettings
from tailrace.topic.topic import Topic
from tests.unit.group.consuming import for_each, left, push
from tests.unit.group.session.one_unit import in_thread
from tests.unit.group.single_owner import SingleOwner, consume
from tests.waiting import until

PATIENCE_S = 10.0
"""Less than a consumer sleeps when it expects nothing, and more than it takes to wake."""


def test_a_message_given_back_comes_again_before_others_of_its_key(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 30)
    given_back = False
    got: defaultdict[str | None, list[int]] = defaultdict(list)
    with consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            if delivery.value == 10 and not given_back:
                given_back = True
                delivery.nack(delay="20ms")
                continue
            got[delivery.key].append(delivery.value)
            if delivery.value == 10:
                assert (delivery.attempt, delivery.redelivered) == (2, True)
    assert all(values == sorted(values) for values in got.values())
    assert sum(map(len, got.values())) == 30
    assert left(topic) == []


def test_a_message_given_back_too_often_raises_an_error_that_says_what_to_do(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 30)
    tried: list[int] = []
    others: set[int] = set()

    def refuse_k1(deliveries: Deliveries[Any]) -> None:
        for delivery in deliveries:
            if delivery.key == "k1":
                tried.append(delivery.attempt)
                delivery.nack()
            else:
                others.add(delivery.value)

    with consume(topic, runtime, until="end", attempts=3) as deliveries:
        with pytest.raises(DeliveryFailed) as caught:
            refuse_k1(deliveries)
        others |= {delivery.value for delivery in deliveries}
        assert deliveries.stats().failed == 1
    assert tried == [1, 2, 3]
    assert (caught.value.key, caught.value.attempts) == ("k1", 3)
    assert caught.value.position.startswith("orders/0.")
    assert "to pass over it, acknowledge its delivery" in str(caught.value)
    assert others == {n for n in range(30) if n % 5 != 1}
    assert left(topic)[:1] == [1]


def test_a_failed_message_can_be_passed_over(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 30)
    got: list[int] = []
    with consume(topic, runtime, until="end", attempts=1) as deliveries:
        while True:
            try:
                for delivery in deliveries:
                    got.append(delivery.value)
                    if delivery.value == 11:
                        delivery.nack()
                break
            except DeliveryFailed:
                assert delivery.value == 11
                delivery.ack()
    assert sorted(got) == list(range(30))
    assert left(topic) == []


def test_manual_acknowledgements_from_many_threads_keep_the_order_per_key(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 400, keys=20)
    mutex = threading.Lock()
    got: defaultdict[str | None, list[int]] = defaultdict(list)

    def work(delivery: Delivery[Any]) -> None:
        with mutex:
            got[delivery.key].append(delivery.value)
        if delivery.value % 50 == 7 and delivery.attempt == 1:
            got[delivery.key].pop()
            delivery.nack(delay="1ms")
        else:
            delivery.ack()

    manual = consume(topic, runtime, until="end", ack="manual")
    with ThreadPoolExecutor(8) as pool, manual as deliveries:
        for delivery in deliveries:
            pool.submit(work, delivery)
    assert sum(map(len, got.values())) == 400
    assert all(values == sorted(values) for values in got.values())
    assert left(topic) == []


def test_an_acknowledgement_by_another_thread_ends_the_wait_for_the_next_of_its_key(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 2, keys=1)
    got: list[Delivery[Any]] = []
    with consume(topic, runtime, ack="manual", limit=2) as deliveries:
        thread = in_thread(lambda: for_each(deliveries, got.append))
        until(lambda: got and waits(deliveries))
        got[0].ack()
        thread.join(PATIENCE_S)
        assert [delivery.value for delivery in got] == [0, 1]


def test_what_is_given_back_for_a_moment_does_not_wait_for_what_was_given_back_for_long(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 2, keys=2)
    got: list[Delivery[Any]] = []
    with consume(topic, runtime, ack="manual", limit=3) as deliveries:
        thread = in_thread(lambda: for_each(deliveries, got.append))
        until(lambda: len(got) == 2 and waits(deliveries))
        got[0].nack(delay="1h")
        until(lambda: waits(deliveries))
        got[1].nack(delay="20ms")
        thread.join(PATIENCE_S)
        assert [delivery.value for delivery in got] == [0, 1, 1]


def waits(deliveries: Deliveries[Any]) -> bool:
    """Whether no unit has anything to hand out, as far as the consumer has looked."""
    share = deliveries._session.share
    with share.lock:
        return share.rota.size == 0


def test_what_is_not_acknowledged_by_hand_comes_again(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10, keys=10)
    with consume(topic, runtime, ack="manual", idle_timeout="20ms") as deliveries:
        for delivery in deliveries:
            if delivery.value % 2:
                delivery.ack()
    assert left(topic) == [0, 2, 4, 6, 8]


def test_what_is_acknowledged_by_hand_soon_after_the_block_was_left_is_done(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)

    def acknowledge_late(delivery: Delivery[Any]) -> None:
        until(lambda: runtime.unsubscribed)
        delivery.ack()

    with consume(topic, runtime, ack="manual", limit=1) as deliveries:
        (delivery,) = deliveries
        thread = in_thread(lambda: acknowledge_late(delivery))
    thread.join()
    assert left(topic) == []


def test_a_failed_key_ends_no_loop_before_the_others_are_done(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    for number in range(40):
        topic.push(number, key=f"k{number % 20}")
    settings = HubSettings.of(prefetch_bytes=500)
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.key == "k0":
            delivery.nack()
        else:
            got.append(delivery.value)

    with consume(topic, runtime, settings=settings, attempts=1, until="end") as deliveries:
        with pytest.raises(DeliveryFailed):
            for_each(deliveries, handler)
        for_each(deliveries, handler)
    assert got == [n for n in range(40) if n % 20]
    assert left(topic) == [0, 20]


def test_a_partition_that_can_hold_back_no_more_says_so(
    backend: Backend, runtime: SingleOwner, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 50, keys=1)
    settings = HubSettings.of(redelivery_records_max=10)
    with consume(topic, runtime, settings=settings, attempts=1, until="end") as deliveries:
        with pytest.raises(DeliveryFailed):
            for_each(deliveries, Delivery.nack)
        assert list(deliveries) == []
        assert deliveries.stats().held_back == 10
        deliveries._session.wake([Partition("orders", 0, 0)])
        assert list(deliveries) == []
    assert caplog.text.count("orders/0.0 stands still") == 1


def test_the_error_carries_the_delivery_so_that_it_can_be_parked_and_passed_over(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 30)
    got: list[int] = []
    parked: list[tuple[int, int, str | None]] = []

    def take(delivery: Delivery[Any]) -> None:
        if delivery.value in (11, 16, 23):
            delivery.nack()
        else:
            got.append(delivery.value)

    with consume(topic, runtime, until="end", attempts=2) as deliveries:
        while len(parked) < 3:
            with pytest.raises(DeliveryFailed) as caught:
                for_each(deliveries, take)
            failed = caught.value.delivery
            assert (failed.id, failed.key) == (caught.value.position, caught.value.key)
            parked.append((failed.value, failed.attempt, failed.key))
            failed.ack(wait=True)
            assert failed.value not in left(topic)
        for_each(deliveries, take)
    assert sorted(parked) == [(11, 2, "k1"), (16, 2, "k1"), (23, 2, "k3")]
    assert sorted(got + [value for value, _, _ in parked]) == list(range(30))
    assert left(topic) == []


def test_what_has_failed_is_settled_and_to_give_it_back_again_does_nothing(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    with consume(topic, runtime, attempts=1, until="end") as deliveries:
        with pytest.raises(DeliveryFailed) as caught:
            for_each(deliveries, Delivery.nack)
        assert caught.value.delivery.settled
        caught.value.delivery.nack()
        assert list(deliveries) == []
        assert deliveries.stats().nacked == 1


def test_a_failed_delivery_stays_with_its_consumer_when_the_error_is_copied(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    with consume(topic, runtime, until="end", attempts=1) as deliveries:
        with pytest.raises(DeliveryFailed) as caught:
            for_each(deliveries, Delivery.nack)
        for error in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
            assert (error.position, error.key) == (caught.value.position, "k0")
            with pytest.raises(Error, match="is not in hand here"):
                error.delivery  # noqa: B018


def test_a_message_given_back_by_another_thread_while_the_next_is_asked_for_comes_before_it(
    topic: Topic[Any], runtime: SingleOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(topic, 3, keys=1)
    look = cast(property, Holding.plain).fget
    assert look is not None
    with consume(topic, runtime, ack="manual", idle_timeout="100ms") as deliveries:
        iterator = iter(deliveries)
        first = next(iterator)

        def interrupted(holding: Holding) -> bool:
            plain: bool = look(holding)
            if plain and not first.settled:
                first.fate = Fate.AGAIN  # the other thread gets no further than this
                holding.nack(first.offset, 0.0, 0.0)
            return plain

        monkeypatch.setattr(Holding, "plain", property(interrupted))
        assert next(iterator, first).value == first.value


def test_a_message_given_back_by_two_threads_at_once_comes_again(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual", limit=2) as deliveries:
        iterator = iter(deliveries)
        first = next(iterator)
        first.nack()
        setattr(first, "fate", None)  # noqa: B010  as the second thread saw it
        first.nack()
        assert first.settled
        assert next(iterator).attempt == 2
