"""What a session owns: from the grant to the end, and after it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tailrace.backend.contract import raise_fence
from tailrace.errors import Fenced, HubClosed
from tailrace.group.chunk import Fate
from tailrace.group.definition import unit_fence
from tailrace.group.events import Died, Drained, Event, Lost, Progressed, Subscribed, Unsubscribed
from tailrace.hub import Hub
from tailrace.topic.topic import Topic
from tests.unit.group.consuming import push
from tests.unit.group.session.one_unit import UNIT, WHERE, mark, numbers
from tests.unit.group.single_owner import SingleOwner, consume
from tests.unit.topic.faults import FaultyBackend


def test_it_subscribes_consumes_and_leaves_with_its_progress_durable(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        assert numbers(iter(deliveries), 10) == list(range(10))
        assert mark(backend) == 0
    assert mark(backend) == 10
    kinds = [type(event) for event in runtime.told]
    assert kinds == [Subscribed, Progressed, Unsubscribed, Progressed, Drained]
    assert runtime.of(Drained)[0].mark == 10
    assert runtime.left


def test_a_drain_ends_only_after_what_is_in_hand_and_then_its_progress_is_durable(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as deliveries:
        iterator = iter(deliveries)
        numbers(iterator, 3)
        runtime.joined.drain(UNIT, runtime.epochs[UNIT])
        assert runtime.of(Drained) == []
        assert list(iterator) == []
        assert [event.mark for event in runtime.of(Drained)] == [3]
        assert mark(backend) == 3


def test_a_drain_ends_with_the_acknowledgement_of_what_was_in_hand_though_nobody_saves(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime, ack="manual", idle_timeout="10ms") as deliveries:
        iterator = iter(deliveries)
        delivery = next(iterator)
        runtime.joined.drain(UNIT, runtime.epochs[UNIT])
        assert list(iterator) == []
        delivery.ack()
        assert runtime.of(Drained) == []
        assert list(deliveries) == []
        assert [event.mark for event in runtime.of(Drained)] == [1]


def test_a_unit_with_nothing_in_hand_is_drained_while_a_handler_runs_elsewhere(
    backend: FaultyBackend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    for number in range(20):
        topic.push(number, key=f"k{number}")
    with consume(topic, runtime) as deliveries:
        here = next(iter(deliveries))
        other = f"orders/0.{1 - here.partition}"
        runtime.joined.drain(other, runtime.epochs[other])
        assert [event.unit for event in runtime.of(Drained)] == [other]


def test_a_refused_commit_loses_the_unit_for_good(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as deliveries:
        iterator = iter(deliveries)
        numbers(iterator, 3)
        raise_fence(backend.store, unit_fence("billing", UNIT))
        runtime.joined.save()
        assert [event.unit for event in runtime.of(Lost)] == [UNIT]
        assert list(iterator) == []
    assert mark(backend) == 0
    assert runtime.of(Drained) == []


class Deaf(SingleOwner):
    """Does not answer when it is told of an end or a loss."""

    def tell(self, event: Event) -> None:
        if isinstance(event, Drained | Lost):
            self.told.append(event)
        else:
            super().tell(event)


def test_a_unit_that_is_lost_is_had_no_longer_before_anybody_has_answered(
    topic: Topic[Any], backend: FaultyBackend
) -> None:
    runtime = Deaf(backend)
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        numbers(iter(deliveries), 3)
        raise_fence(backend.store, unit_fence("billing", UNIT))
        runtime.joined.save()
        assert deliveries.stats().partitions == ()


def test_it_is_said_once_that_a_unit_is_drained(
    topic: Topic[Any], backend: FaultyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.group.session._LEAVE_S", 0.05)
    runtime = Deaf(backend)
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        for _ in range(3):
            runtime.joined.drain(UNIT, runtime.epochs[UNIT])
        assert deliveries.stats().in_hand == 0
        assert len(runtime.of(Drained)) == 1


def test_what_is_given_up_on_leaving_may_still_be_given_back(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual") as deliveries:
        delivery = next(iter(deliveries))
        share = deliveries._session.share
        with share.lock:
            share.rota.release()  # as leaving does for what nobody acknowledged in time
        delivery.nack()
        assert delivery.fate is Fate.AGAIN


def test_nothing_is_handed_out_of_a_unit_that_somebody_else_has(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as deliveries:
        raise_fence(backend.store, unit_fence("billing", UNIT))
        assert list(deliveries) == []
    assert len(runtime.of(Lost)) == 1


def test_nothing_is_handed_out_beyond_the_lease(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="20ms") as deliveries:
        iterator = iter(deliveries)
        numbers(iterator, 2)
        runtime.until_s = float("-inf")
        runtime.joined.rouse()
        assert list(iterator) == []
        runtime.until_s = float("inf")
        assert numbers(iter(deliveries), 8) == list(range(2, 10))


def test_a_lease_that_ends_during_a_handler_stops_the_next_hand_out(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    runtime.until_s = time.monotonic() + 3600
    with consume(topic, runtime, idle_timeout="20ms") as deliveries:
        iterator = iter(deliveries)
        numbers(iterator, 1)
        runtime.until_s = time.monotonic()
        time.sleep(0.011)  # longer than a turn: the handler
        assert list(iterator) == []


def test_a_dropped_unit_is_not_committed(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, ack="manual", idle_timeout="10ms") as deliveries:
        delivery = next(iter(deliveries))
        runtime.joined.drop(UNIT, runtime.epochs.pop(UNIT))
        delivery.ack()
        with pytest.raises(Fenced):
            delivery.ack(wait=True)
        assert list(deliveries) == []
    assert mark(backend) == 0


def test_what_was_done_of_a_unit_that_is_gone_still_counts(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        numbers(iter(deliveries), 4)
        runtime.joined.drop(UNIT, runtime.epochs.pop(UNIT))
        stats = deliveries.stats()
    assert (stats.partitions, stats.delivered, stats.acknowledged) == ((), 4, 3)


def test_a_deleted_topic_loses_the_unit(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 3)
    with consume(topic, runtime, idle_timeout="10ms") as deliveries:
        assert len(list(deliveries)) == 3
        Hub.from_backend(backend).delete_topic("orders")
        runtime.joined.wake([WHERE])
        assert list(deliveries) == []
    assert len(runtime.of(Lost)) == 1


def test_a_runtime_that_failed_ends_the_iteration_with_its_error(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    with consume(topic, runtime) as deliveries:
        runtime.joined.fail(HubClosed("closed"))
        with pytest.raises(HubClosed):
            next(iter(deliveries))
    assert runtime.left


def test_leaving_gives_up_after_a_while_when_nobody_answers(
    topic: Topic[Any], runtime: SingleOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.group.session._LEAVE_S", 0.05)
    push(topic, 3)
    with consume(topic, runtime) as deliveries:
        numbers(iter(deliveries), 1)
        monkeypatch.setattr(runtime.session, "departed", lambda: None)
    assert [type(event) for event in runtime.told][-1] is Died
    assert runtime.left


def test_a_drain_of_what_it_does_not_have_is_answered_at_once(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    with consume(topic, runtime, units=[UNIT]):
        runtime.joined.drain("orders/9.9", 4)
        assert ("orders/9.9", 4) in [(e.unit, e.epoch) for e in runtime.of(Drained)]


def test_a_unit_granted_again_goes_on_where_the_ledger_is(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        numbers(iter(deliveries), 4)
        runtime.joined.save()
        runtime.grant(UNIT)
        delivery = next(iter(deliveries))
        assert delivery.value == 3
        assert delivery.redelivered


def test_of_a_unit_granted_again_everything_comes_from_the_new_grant_alone(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="50ms") as deliveries:
        numbers(iter(deliveries), 4)
        runtime.grant(UNIT)
        assert [delivery.value for delivery in deliveries] == list(range(10))
    assert runtime.of(Lost) == []
