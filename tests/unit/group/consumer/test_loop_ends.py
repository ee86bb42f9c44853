"""Loops that end: at the end offsets, at a limit, after idle time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.testing import ManualClock
from tests.support.fake_runtime import FOREVER, FakeRuntime, consume
from tests.support.groups import unacked_values
from tests.support.topics import push
from tests.support.waiting import until


def test_until_the_end_means_the_end_offsets_at_the_start(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    got = []
    with consume(topic, runtime, until="end") as consumer:
        for delivery in consumer:
            got.append(delivery.value)
            push(topic, 1, first=100 + delivery.value)
    assert sorted(got) == list(range(10))
    assert len(unacked_values(topic)) == 10


def test_until_the_end_later_messages_are_not_read_together_with_earlier_ones(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    with consume(topic, runtime, until="end") as consumer:
        push(topic, 10, first=10)
        assert sorted(delivery.value for delivery in consumer) == list(range(10))
    assert unacked_values(topic) == list(range(10, 20))


def test_until_the_end_of_an_empty_topic_ends_at_once(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    with consume(topic, runtime, until="end") as consumer:
        assert list(consumer) == []


def test_until_the_end_needs_no_second_check_when_no_other_consumer_owns_a_partition(
    topic: Topic[Any], runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.group.consumer.poll._CHECK_S", 1000.0)
    push(topic, 10)
    with consume(topic, runtime, until="end") as consumer:
        assert len(list(consumer)) == 10


def test_until_the_end_waits_for_messages_in_flight_at_other_consumers(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    push(topic, 20)
    other = FakeRuntime(backend)
    mine = consume(topic, runtime, units=["orders/0.0"], until="end")
    theirs = consume(topic, other, units=["orders/0.1"], ack="manual", idle_timeout="20ms")
    with theirs, ThreadPoolExecutor(1) as pool:
        held = list(theirs)
        ending = pool.submit(lambda: len(list(mine)))
        with pytest.raises(TimeoutError):
            ending.result(timeout=0.3)
        while held:
            for delivery in held:
                delivery.ack()
            held = list(theirs)
        other.joined.save()
        assert 0 < ending.result(timeout=10) < 20
    mine.__exit__(None, None, None)
    assert unacked_values(topic) == []


def test_a_limit_ends_the_loop_with_the_last_one_acknowledged(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    with consume(topic, runtime, limit=4) as consumer:
        got = [delivery.value for delivery in consumer]
        assert len(got) == 4
        assert list(consumer) == []
        assert consumer.stats().in_flight == 0
    assert unacked_values(topic) == sorted(set(range(10)) - set(got))


def test_a_loop_ends_when_nothing_came_for_a_while(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="20ms") as consumer:
        assert len(list(consumer)) == 10


def test_the_time_that_a_handler_takes_is_not_idle(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 1)
    with consume(topic, runtime, idle_timeout="50ms") as consumer:
        iterator = iter(consumer)
        next(iterator)
        time.sleep(0.06)
        began = time.monotonic()
        assert list(iterator) == []
        assert time.monotonic() - began >= 0.05


def test_the_time_to_join_is_not_idle(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 10)
    consumer = consume(topic, runtime, idle_timeout="20ms")
    units, runtime.units = runtime.units, []
    runtime.until_s = -FOREVER
    with ThreadPoolExecutor(1) as pool, consumer:
        loop = pool.submit(lambda: len(list(consumer)))
        with pytest.raises(TimeoutError):
            loop.result(timeout=0.3)
        for unit in units:
            runtime.grant(unit)
        runtime.until_s = FOREVER
        assert loop.result(timeout=10) == 10


def test_time_on_standby_is_idle(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 10)
    consumer = consume(topic, runtime, idle_timeout="20ms")
    runtime.units = []
    with consumer:
        assert list(consumer) == []


class CountingClock(ManualClock):
    """A clock that counts its reads."""

    reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return super().monotonic()


def test_idle_time_starts_again_when_the_first_partitions_are_granted(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    clock = CountingClock()
    consumer = consume(topic, runtime, idle_timeout="50ms", clock=clock)
    units, runtime.units = runtime.units, []
    with ThreadPoolExecutor(1) as pool, consumer:
        loop = pool.submit(lambda: [delivery.value for delivery in consumer])
        until(lambda: clock.reads > 20)
        clock.advance(0.03)
        for unit in units:
            runtime.grant(unit)
        until(lambda: len(runtime.awaited) == len(units))
        clock.advance(0.03)
        with pytest.raises(TimeoutError):
            loop.result(timeout=0.3)
        push(topic, 1)
        runtime.wake_session()
        until(lambda: consumer.stats().delivered)
        while not loop.done():
            clock.advance(0.1)
        assert loop.result() == [0]
