"""A session costs what there is to do, however many units it has."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from tailrace.group.deliveries import Deliveries
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tailrace.topic.topic import Topic
from tests.unit.group.single_owner import SingleOwner, consume

MANY = 10_000
FEW = 10
BUSY = 10
ROUNDS = 12
RATIO_MAX = 4.0


class Consumer:
    """One that has units and nothing to do, until something is pushed to some of them."""

    def __init__(
        self, topic: Topic[Any], runtime: SingleOwner, deliveries: Deliveries[Any]
    ) -> None:
        self.topic = topic
        self.runtime = runtime
        self.deliveries = deliveries
        keys = ((key, self.topic.route(key)) for key in map(str, count()))
        self.keys = dict([next(keys) for _ in range(BUSY)])

    def push(self, value: int) -> None:
        """Push a message, and tell the session as the runtime would."""
        key = str(value % BUSY)
        self.topic.push(value, key=key)
        assert self.runtime.session is not None
        where = Partition("orders", 0, self.keys[key])
        self.runtime.awaited.pop(where)
        self.runtime.joined.wake([where])

    def cpu_s(self, value: int) -> float:
        """What one message costs from its being there until it is durable and more is awaited."""
        self.push(value)
        assert self.runtime.session is not None
        began = time.thread_time()
        assert [delivery.value for delivery in self.deliveries] == [value]
        self.runtime.joined.save()
        return time.thread_time() - began


@contextmanager
def consumer(units: int) -> Iterator[Consumer]:
    backend = MemoryBackend()
    topic = Hub.from_backend(backend).create_topic("orders", partitions=units, any_count=True)
    runtime = SingleOwner(backend)
    with consume(topic, runtime, idle_timeout="1ms") as deliveries:
        assert list(deliveries) == []
        yield Consumer(topic, runtime, deliveries)
    assert not runtime.died()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No time of the garbage collector, which looks at the units of all tests."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_a_message_costs_the_same_however_many_units_there_are() -> None:
    with consumer(FEW) as few, consumer(MANY) as many:
        values = range(BUSY * ROUNDS)
        costs = [(few.cpu_s(value), many.cpu_s(value)) for value in values][BUSY:]
    of_few, of_many = (min(each) for each in zip(*costs, strict=True))
    assert of_many < RATIO_MAX * of_few, f"{of_many * 1e6:.0f} and {of_few * 1e6:.0f} µs"


def test_ten_thousand_units_granted_at_once_come_to_deliver() -> None:
    backend = MemoryBackend()
    topic = Hub.from_backend(backend).create_topic("orders", partitions=MANY, any_count=True)
    topic.push_many([(f"k{n}", n) for n in range(100)])
    with consume(topic, SingleOwner(backend), limit=100) as deliveries:
        assert sorted(delivery.value for delivery in deliveries) == list(range(100))
