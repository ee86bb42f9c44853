"""Nacked messages: redelivered in order, a limited number of times."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from tailrace.backend.contract import Backend
from tailrace.delivery.cursor import Cursor
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.fetched import Resolution
from tailrace.errors import DeliveryFailed, Error
from tailrace.group.consumer.consumer import Consumer
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.settings import HubSettings
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.groups import for_each, unacked_values
from tests.support.topics import push
from tests.support.waiting import in_thread, until

PATIENCE_S = 10.0
"""Less than a consumer sleeps when it expects nothing, and more than it takes to wake."""


def test_a_nacked_message_is_redelivered_before_others_of_its_key(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 30)
    nacked = False
    got: defaultdict[str | None, list[int]] = defaultdict(list)
    with consume(topic, runtime, until="end") as consumer:
        for delivery in consumer:
            if delivery.value == 10 and not nacked:
                nacked = True
                delivery.nack(delay="20ms")
                continue
            got[delivery.key].append(delivery.value)
            if delivery.value == 10:
                assert (delivery.attempt, delivery.redelivered) == (2, True)
    assert all(values == sorted(values) for values in got.values())
    assert sum(map(len, got.values())) == 30
    assert unacked_values(topic) == []


def test_a_message_nacked_too_often_raises_an_error_that_says_what_to_do(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 30)
    tried: list[int] = []
    others: set[int] = set()

    def refuse_k1(consumer: Consumer[Any]) -> None:
        for delivery in consumer:
            if delivery.key == "k1":
                tried.append(delivery.attempt)
                delivery.nack()
            else:
                others.add(delivery.value)

    with consume(topic, runtime, until="end", attempts=3) as consumer:
        with pytest.raises(DeliveryFailed) as caught:
            refuse_k1(consumer)
        others |= {delivery.value for delivery in consumer}
        assert consumer.stats().failed == 1
    assert tried == [1, 2, 3]
    assert (caught.value.key, caught.value.attempts) == ("k1", 3)
    assert caught.value.position.startswith("orders/0.")
    assert "or skip the message with .delivery.ack()" in str(caught.value)
    assert f"tailrace group skip {consumer.group} {caught.value.position} " in str(caught.value)
    assert others == {n for n in range(30) if n % 5 != 1}
    assert unacked_values(topic)[:1] == [1]


def test_a_failed_message_can_be_skipped(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 30)
    got: list[int] = []
    with consume(topic, runtime, until="end", attempts=1) as consumer:
        while True:
            try:
                for delivery in consumer:
                    got.append(delivery.value)
                    if delivery.value == 11:
                        delivery.nack()
                break
            except DeliveryFailed:
                assert delivery.value == 11
                delivery.ack()
    assert sorted(got) == list(range(30))
    assert unacked_values(topic) == []


def test_manual_acknowledgements_from_many_threads_keep_the_order_per_key(
    topic: Topic[Any], runtime: FakeRuntime
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
    with ThreadPoolExecutor(8) as pool, manual as consumer:
        for delivery in consumer:
            pool.submit(work, delivery)
    assert sum(map(len, got.values())) == 400
    assert all(values == sorted(values) for values in got.values())
    assert unacked_values(topic) == []


def test_an_acknowledgement_by_another_thread_ends_the_wait_for_the_next_of_its_key(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 2, keys=1)
    got: list[Delivery[Any]] = []
    with consume(topic, runtime, ack="manual", limit=2) as consumer:
        thread = in_thread(lambda: for_each(consumer, got.append))
        until(lambda: got and waits(consumer))
        got[0].ack()
        thread.join(PATIENCE_S)
        assert [delivery.value for delivery in got] == [0, 1]


def test_a_short_nack_delay_does_not_wait_for_a_long_one(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 2, keys=2)
    got: list[Delivery[Any]] = []
    with consume(topic, runtime, ack="manual", limit=3) as consumer:
        thread = in_thread(lambda: for_each(consumer, got.append))
        until(lambda: len(got) == 2 and waits(consumer))
        got[0].nack(delay="1h")
        until(lambda: waits(consumer))
        got[1].nack(delay="20ms")
        thread.join(PATIENCE_S)
        assert [delivery.value for delivery in got] == [0, 1, 1]


def waits(consumer: Consumer[Any]) -> bool:
    """True if no unit can deliver, as far as the consumer has read."""
    session = consumer._session
    with session.state.lock:
        return session.machine.scheduler.size == 0


def test_a_message_that_is_not_acknowledged_manually_is_redelivered(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10, keys=10)
    with consume(topic, runtime, ack="manual", idle_timeout="20ms") as consumer:
        for delivery in consumer:
            if delivery.value % 2:
                delivery.ack()
    assert unacked_values(topic) == [0, 2, 4, 6, 8]


def test_a_manual_acknowledgement_soon_after_the_block_still_counts(
    topic: Topic[Any], runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FINISH_S", "_LEAVE_S"):  # of which a busy machine may take most
        monkeypatch.setattr(f"tailrace.group.session.session.{name}", 60.0)
    push(topic, 1)

    def acknowledge_late(delivery: Delivery[Any]) -> None:
        until(lambda: runtime.unsubscribed)
        delivery.ack()

    with consume(topic, runtime, ack="manual", limit=1) as consumer:
        (delivery,) = consumer
        thread = in_thread(lambda: acknowledge_late(delivery))
    thread.join()
    assert unacked_values(topic) == []


def test_a_failed_key_ends_no_loop_before_the_others_are_done(
    backend: Backend, runtime: FakeRuntime
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

    with consume(topic, runtime, settings=settings, attempts=1, until="end") as consumer:
        with pytest.raises(DeliveryFailed):
            for_each(consumer, handler)
        for_each(consumer, handler)
    assert got == [n for n in range(40) if n % 20]
    assert unacked_values(topic) == [0, 20]


def test_a_partition_with_as_many_failed_messages_as_it_may_hold_is_logged_as_stalled(
    backend: Backend, runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 50, keys=50)
    settings = HubSettings.of(redelivery_records_max=10)
    with consume(topic, runtime, settings=settings, attempts=1, until="end") as consumer:
        for _ in range(10):
            with pytest.raises(DeliveryFailed):
                for_each(consumer, Delivery.nack)
        assert list(consumer) == []
        assert consumer.stats().held_back == 10
        consumer._session.wake([Partition("orders", 0, 0)])
        assert list(consumer) == []
    assert caplog.text.count("orders/0.0 is stalled: 10 messages failed") == 1


@pytest.mark.parametrize("limit", ["redelivery_records_max", "prefetch_bytes"])
def test_a_key_with_more_messages_than_can_be_held_back_blocks_no_other_and_keeps_its_order(
    topic: Topic[Any], runtime: FakeRuntime, limit: str
) -> None:
    push(topic, 200, keys=4)
    settings = HubSettings.of(**{limit: 20})
    got: dict[str | None, list[int]] = {f"k{key}": [] for key in range(4)}

    def take(delivery: Delivery[Any]) -> None:
        others = sum(len(values) for key, values in got.items() if key != "k1")
        if delivery.key == "k1" and others < 150:
            delivery.nack("5ms")
        else:
            got[delivery.key].append(delivery.value)

    with consume(topic, runtime, settings=settings, attempts=1_000_000, until="end") as consumer:
        for_each(consumer, take)
        assert consumer.stats().held_back == 0
    assert got == {f"k{key}": list(range(key, 200, 4)) for key in range(4)}
    assert unacked_values(topic) == []


def test_the_error_carries_the_delivery_so_that_it_can_be_parked_and_skipped(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 30)
    got: list[int] = []
    parked: list[tuple[int, int, str | None]] = []

    def take(delivery: Delivery[Any]) -> None:
        if delivery.value in (11, 16, 23):
            delivery.nack()
        else:
            got.append(delivery.value)

    with consume(topic, runtime, until="end", attempts=2) as consumer:
        while len(parked) < 3:
            with pytest.raises(DeliveryFailed) as caught:
                for_each(consumer, take)
            failed = caught.value.delivery
            assert (failed.id, failed.key) == (caught.value.position, caught.value.key)
            parked.append((failed.value, failed.attempt, failed.key))
            failed.ack(wait=True)
            assert failed.value not in unacked_values(topic)
        for_each(consumer, take)
    assert sorted(parked) == [(11, 2, "k1"), (16, 2, "k1"), (23, 2, "k3")]
    assert sorted(got + [value for value, _, _ in parked]) == list(range(30))
    assert unacked_values(topic) == []


def test_a_failed_delivery_is_resolved_and_another_nack_does_nothing(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with consume(topic, runtime, attempts=1, until="end") as consumer:
        with pytest.raises(DeliveryFailed) as caught:
            for_each(consumer, Delivery.nack)
        assert caught.value.delivery.resolved
        caught.value.delivery.nack()
        assert list(consumer) == []
        assert consumer.stats().nacked == 1


def test_a_failed_delivery_stays_with_its_consumer_when_the_error_is_copied(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with consume(topic, runtime, until="end", attempts=1) as consumer:
        with pytest.raises(DeliveryFailed) as caught:
            for_each(consumer, Delivery.nack)
        for error in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
            assert (error.position, error.key) == (caught.value.position, "k0")
            with pytest.raises(Error, match="is not in flight here"):
                error.delivery  # noqa: B018


def test_a_message_nacked_by_another_thread_during_a_poll_is_redelivered_before_the_next(
    topic: Topic[Any], runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(topic, 3, keys=1)
    look = cast(property, Cursor.plain).fget
    assert look is not None
    with consume(topic, runtime, ack="manual", idle_timeout="100ms") as consumer:
        iterator = iter(consumer)
        first = next(iterator)

        def interrupted(cursor: Cursor) -> bool:
            plain: bool = look(cursor)
            if plain and not first.resolved:
                first.resolution = Resolution.NACKED  # the other thread gets no further than this
                cursor.nack(first.offset, 0.0, 0.0)
            return plain

        monkeypatch.setattr(Cursor, "plain", property(interrupted))
        assert next(iterator, first).value == first.value


def test_a_message_nacked_by_two_threads_at_once_is_redelivered(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual", limit=2) as consumer:
        iterator = iter(consumer)
        first = next(iterator)
        first.nack()
        setattr(first, "resolution", None)  # noqa: B010  as the second thread saw it
        first.nack()
        assert first.resolved
        assert next(iterator).attempt == 2
