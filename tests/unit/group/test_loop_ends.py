"""Loops that end: at what was there, after so many, after idle time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.hub import Hub
from tailrace.testing import ManualClock
from tailrace.topic.topic import Topic
from tests.unit.group.consuming import left, push
from tests.unit.group.single_owner import FOREVER, SingleOwner, consume
from tests.waiting import until


def test_until_the_end_means_what_was_there_at_the_start(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    got = []
    with consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            got.append(delivery.value)
            push(topic, 1, first=100 + delivery.value)
    assert sorted(got) == list(range(10))
    assert len(left(topic)) == 10


def test_until_the_end_what_came_since_is_not_read_together_with_what_was_there(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime, until="end") as deliveries:
        push(topic, 10, first=10)
        assert sorted(delivery.value for delivery in deliveries) == list(range(10))
    assert left(topic) == list(range(10, 20))


def test_until_the_end_of_an_empty_topic_is_at_once(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    with consume(topic, runtime, until="end") as deliveries:
        assert list(deliveries) == []


def test_until_the_end_needs_no_second_look_when_nobody_else_has_anything(
    topic: Topic[Any], runtime: SingleOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.group.part._LOOK_S", 1000.0)
    push(topic, 10)
    with consume(topic, runtime, until="end") as deliveries:
        assert len(list(deliveries)) == 10


def test_until_the_end_waits_for_what_others_have_in_hand(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    push(topic, 20)
    other = SingleOwner(backend)
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
    assert left(topic) == []


def test_a_limit_ends_the_loop_with_the_last_one_acknowledged(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime, limit=4) as deliveries:
        got = [delivery.value for delivery in deliveries]
        assert len(got) == 4
        assert list(deliveries) == []
        assert deliveries.stats().in_hand == 0
    assert left(topic) == sorted(set(range(10)) - set(got))


def test_a_loop_ends_when_nothing_came_for_a_while(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="20ms") as deliveries:
        assert len(list(deliveries)) == 10


def test_the_time_that_a_handler_takes_is_not_idle(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 1)
    with consume(topic, runtime, idle_timeout="50ms") as deliveries:
        iterator = iter(deliveries)
        next(iterator)
        time.sleep(0.06)
        began = time.monotonic()
        assert list(iterator) == []
        assert time.monotonic() - began >= 0.05


def test_the_time_to_join_is_not_idle(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    deliveries = consume(topic, runtime, idle_timeout="20ms")
    units, runtime.units = runtime.units, []
    runtime.until_s = -FOREVER
    with ThreadPoolExecutor(1) as pool, deliveries:
        loop = pool.submit(lambda: len(list(deliveries)))
        with pytest.raises(TimeoutError):
            loop.result(timeout=0.3)
        for unit in units:
            runtime.grant(unit)
        runtime.until_s = FOREVER
        assert loop.result(timeout=10) == 10


def test_standing_by_is_idle(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    deliveries = consume(topic, runtime, idle_timeout="20ms")
    runtime.units = []
    with deliveries:
        assert list(deliveries) == []


class CountingClock(ManualClock):
    """It knows how often it was looked at."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic()


def test_idle_time_counts_anew_when_the_first_partitions_come(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    clock = CountingClock()
    deliveries = consume(topic, runtime, idle_timeout="50ms", clock=clock)
    units, runtime.units = runtime.units, []
    with ThreadPoolExecutor(1) as pool, deliveries:
        loop = pool.submit(lambda: [delivery.value for delivery in deliveries])
        until(lambda: clock.looks > 20)
        clock.advance(0.03)
        for unit in units:
            runtime.grant(unit)
        until(lambda: len(runtime.awaited) == len(units))
        clock.advance(0.03)
        with pytest.raises(TimeoutError):
            loop.result(timeout=0.3)
        push(topic, 1)
        runtime.tide()
        until(lambda: deliveries.stats().delivered)
        while not loop.done():
            clock.advance(0.1)
        assert loop.result() == [0]
