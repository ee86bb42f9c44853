"""The cost of a session does not depend on its number of units."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from tailrace.group.consumer.consumer import Consumer
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tests.support.fake_runtime import FakeRuntime, consume

MANY = 10_000
FEW = 10
BUSY = 10
ROUNDS = 12
RATIO_MAX = 4.0


class BusyConsumer:
    """A session with idle units, until messages are pushed to some of them."""

    def __init__(self, topic: Topic[Any], runtime: FakeRuntime, consumer: Consumer[Any]) -> None:
        self.topic = topic
        self.runtime = runtime
        self.consumer = consumer
        keys = ((key, self.topic.route(key)) for key in map(str, count()))
        self.keys = dict([next(keys) for _ in range(BUSY)])

    def push(self, value: int) -> None:
        """Push a message, and wake the session as the runtime does."""
        key = str(value % BUSY)
        self.topic.push(value, key=key)
        assert self.runtime.session is not None
        where = Partition("orders", 0, self.keys[key])
        self.runtime.awaited.pop(where)
        self.runtime.joined.wake([where])

    def cpu_s(self, value: int) -> float:
        """Return the time of one message, from its push until it is durable."""
        self.push(value)
        assert self.runtime.session is not None
        began = time.thread_time()
        assert [delivery.value for delivery in self.consumer] == [value]
        self.runtime.joined.save()
        return time.thread_time() - began


@contextmanager
def busy_consumer(units: int) -> Iterator[BusyConsumer]:
    backend = MemoryBackend()
    topic = Hub.from_backend(backend).create_topic("orders", partitions=units, any_count=True)
    runtime = FakeRuntime(backend)
    with consume(topic, runtime, idle_timeout="1ms") as consumer:
        assert list(consumer) == []
        yield BusyConsumer(topic, runtime, consumer)
    assert not runtime.died()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Turn the garbage collector off, which would visit the units of all tests."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_a_message_costs_the_same_however_many_units_there_are() -> None:
    with busy_consumer(FEW) as few, busy_consumer(MANY) as many:
        values = range(BUSY * ROUNDS)
        costs = [(few.cpu_s(value), many.cpu_s(value)) for value in values][BUSY:]
    of_few, of_many = (min(each) for each in zip(*costs, strict=True))
    assert of_many < RATIO_MAX * of_few, f"{of_many * 1e6:.0f} and {of_few * 1e6:.0f} µs"


def test_ten_thousand_units_granted_at_once_are_delivered() -> None:
    backend = MemoryBackend()
    topic = Hub.from_backend(backend).create_topic("orders", partitions=MANY, any_count=True)
    topic.push_many([(f"k{n}", n) for n in range(100)])
    with consume(topic, FakeRuntime(backend), limit=100) as consumer:
        assert sorted(delivery.value for delivery in consumer) == list(range(100))
