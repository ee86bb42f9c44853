"""The units that a session owns: from the grant to the end, and after it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tailrace.backend.contract import raise_fence
from tailrace.delivery.fetched import Resolution
from tailrace.errors import Fenced, HubClosed
from tailrace.group.protocol.events import (
    Died,
    Drained,
    Lost,
    Progressed,
    Subscribed,
    Unsubscribed,
)
from tailrace.group.store.definition import unit_fence
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.faulty_backend import FaultyBackend
from tests.support.groups import mark
from tests.support.topics import push
from tests.unit.group.session.one_unit import UNIT, WHERE, numbers


def test_a_session_subscribes_consumes_and_leaves_with_its_progress_durable(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as consumer:
        assert numbers(iter(consumer), 10) == list(range(10))
        assert mark(backend) == 0
    assert mark(backend) == 10
    kinds = [type(event) for event in runtime.posted]
    assert kinds == [Subscribed, Progressed, Unsubscribed, Progressed, Drained]
    assert runtime.of(Drained)[0].mark == 10
    assert runtime.left


def test_a_drain_ends_after_the_messages_in_flight_with_its_progress_durable(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        iterator = iter(consumer)
        numbers(iterator, 3)
        runtime.joined.drain(UNIT, runtime.epochs[UNIT])
        assert runtime.of(Drained) == []
        assert list(iterator) == []
        assert [event.mark for event in runtime.of(Drained)] == [3]
        assert mark(backend) == 3


def test_a_drain_ends_with_the_last_acknowledgement_in_flight_without_a_save(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    with consume(topic, runtime, ack="manual", idle_timeout="10ms") as consumer:
        iterator = iter(consumer)
        delivery = next(iterator)
        runtime.joined.drain(UNIT, runtime.epochs[UNIT])
        assert list(iterator) == []
        delivery.ack()
        assert runtime.of(Drained) == []
        assert list(consumer) == []
        assert [event.mark for event in runtime.of(Drained)] == [1]


def test_a_unit_with_nothing_in_flight_is_drained_while_a_handler_runs_for_another(
    backend: FaultyBackend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    for number in range(20):
        topic.push(number, key=f"k{number}")
    with consume(topic, runtime) as consumer:
        here = next(iter(consumer))
        other = f"orders/0.{1 - here.partition}"
        runtime.joined.drain(other, runtime.epochs[other])
        assert [event.unit for event in runtime.of(Drained)] == [other]


def test_a_unit_whose_last_delivery_is_nacked_is_drained_while_a_handler_runs_for_another(
    backend: FaultyBackend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    for number in range(20):
        topic.push(number, key=f"k{number}")
    with consume(topic, runtime, ack="manual") as consumer:
        iterator = iter(consumer)
        nacked = next(iterator)
        unit = f"orders/0.{nacked.partition}"
        runtime.joined.drain(unit, runtime.epochs[unit])
        handled = next(iterator)
        runtime.joined.save()
        due = runtime.due
        nacked.nack()
        assert runtime.due == due + 1
        runtime.joined.save()
        assert [event.unit for event in runtime.of(Drained)] == [unit]
        handled.ack()


def test_a_refused_commit_loses_the_unit_for_good(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        iterator = iter(consumer)
        numbers(iterator, 3)
        raise_fence(backend.store, unit_fence("billing", UNIT))
        runtime.joined.save()
        assert [event.unit for event in runtime.of(Lost)] == [UNIT]
        assert list(iterator) == []
    assert mark(backend) == 0
    assert runtime.of(Drained) == []


def test_a_lost_unit_is_dropped_before_the_runtime_answers(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    runtime.unanswered = (Drained, Lost)
    push(topic, 10)
    with consume(topic, runtime) as consumer:
        numbers(iter(consumer), 3)
        raise_fence(backend.store, unit_fence("billing", UNIT))
        runtime.joined.save()
        assert consumer.stats().partitions == ()


def test_a_drained_unit_is_reported_once(
    topic: Topic[Any], runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.group.session.session._LEAVE_S", 0.05)
    runtime.unanswered = (Drained, Lost)
    push(topic, 10)
    with consume(topic, runtime) as consumer:
        for _ in range(3):
            runtime.joined.drain(UNIT, runtime.epochs[UNIT])
        assert consumer.stats().in_flight == 0
        assert len(runtime.of(Drained)) == 1


def test_messages_given_up_on_leaving_may_still_be_nacked(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual") as consumer:
        delivery = next(iter(consumer))
        session = consumer._session
        with session.state.lock:
            session.machine.release()  # as leaving does for what nobody acknowledged in time
        delivery.nack()
        assert delivery.resolution is Resolution.NACKED


def test_nothing_is_delivered_from_a_unit_that_another_consumer_owns(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        raise_fence(backend.store, unit_fence("billing", UNIT))
        assert list(consumer) == []
    assert len(runtime.of(Lost)) == 1


def test_nothing_is_delivered_beyond_the_lease(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="20ms") as consumer:
        iterator = iter(consumer)
        numbers(iterator, 2)
        runtime.until_s = float("-inf")
        runtime.joined.interrupt()
        assert list(iterator) == []
        runtime.until_s = float("inf")
        assert numbers(iter(consumer), 8) == list(range(2, 10))


def test_a_lease_that_ends_during_a_handler_stops_the_next_delivery(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    runtime.until_s = time.monotonic() + 3600
    with consume(topic, runtime, idle_timeout="20ms") as consumer:
        iterator = iter(consumer)
        numbers(iterator, 1)
        runtime.until_s = time.monotonic()
        time.sleep(0.011)  # longer than a turn: the handler
        assert list(iterator) == []


def test_a_dropped_unit_is_not_committed(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, ack="manual", idle_timeout="10ms") as consumer:
        delivery = next(iter(consumer))
        runtime.joined.drop(UNIT, runtime.epochs.pop(UNIT))
        delivery.ack()
        with pytest.raises(Fenced):
            delivery.ack(wait=True)
        assert list(consumer) == []
    assert mark(backend) == 0


def test_acknowledgements_of_a_removed_unit_still_count(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as consumer:
        numbers(iter(consumer), 4)
        runtime.joined.drop(UNIT, runtime.epochs.pop(UNIT))
        stats = consumer.stats()
    assert (stats.partitions, stats.delivered, stats.acknowledged) == ((), 4, 3)


def test_a_deleted_topic_loses_the_unit(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 3)
    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        assert len(list(consumer)) == 3
        Hub.from_backend(backend).delete_topic("orders")
        runtime.joined.wake([WHERE])
        assert list(consumer) == []
    assert len(runtime.of(Lost)) == 1


def test_a_runtime_that_failed_ends_the_iteration_with_its_error(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    with consume(topic, runtime) as consumer:
        runtime.joined.fail(HubClosed("closed"))
        with pytest.raises(HubClosed):
            next(iter(consumer))
    assert runtime.left


def test_leaving_gives_up_after_a_timeout_without_an_answer(
    topic: Topic[Any], runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.group.session.session._LEAVE_S", 0.05)
    push(topic, 3)
    with consume(topic, runtime) as consumer:
        numbers(iter(consumer), 1)
        monkeypatch.setattr(runtime.session, "departed", lambda: None)
    assert [type(event) for event in runtime.posted][-1] is Died
    assert runtime.left


def test_a_drain_of_a_unit_that_is_not_owned_is_answered_at_once(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    with consume(topic, runtime, units=[UNIT]):
        runtime.joined.drain("orders/9.9", 4)
        assert ("orders/9.9", 4) in [(e.unit, e.epoch) for e in runtime.of(Drained)]


def test_a_unit_granted_again_continues_at_its_ledger(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as consumer:
        numbers(iter(consumer), 4)
        runtime.joined.save()
        runtime.grant(UNIT)
        delivery = next(iter(consumer))
        assert delivery.value == 3
        assert delivery.redelivered


def test_a_unit_granted_again_delivers_under_the_new_grant_alone(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="50ms") as consumer:
        numbers(iter(consumer), 4)
        runtime.grant(UNIT)
        assert [delivery.value for delivery in consumer] == list(range(10))
    assert runtime.of(Lost) == []
