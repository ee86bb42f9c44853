"""Handlers that decide about their message: `Reject` and `RetryLater`."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import DeliveryFailed, Error, Reject, Retry, RetryLater
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.fetched import Resolution
from tailrace.hub.topic import Topic
from tailrace.testing import GroupWorld
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.groups import unacked_values
from tests.support.topics import push

ENDLESS = Retry(first="1h", max="1h")


class Worker:
    """A handler that raises an error for one value, and the attempts of each value."""

    def __init__(self, value: int, error: Exception, *, times: int = 1000) -> None:
        self.value, self.error, self.times = value, error, times
        self.attempts: list[tuple[int, int]] = []

    def __call__(self, delivery: Delivery[Any]) -> None:
        self.attempts.append((delivery.value, delivery.attempt))
        if delivery.value == self.value and delivery.attempt <= self.times:
            raise self.error


def test_a_rejected_message_is_not_attempted_again_however_patient_the_policy(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    worker = Worker(4, Reject("negative total"))
    consume(topic, runtime, until="end").run(worker, retry=ENDLESS, on_failed="skip")
    assert sorted(worker.attempts) == [(value, 1) for value in range(10)]
    assert unacked_values(topic) == []


def test_a_rejected_message_ends_a_run_without_another_action(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with pytest.raises(DeliveryFailed) as caught:
        consume(topic, runtime, until="end").run(Worker(0, Reject("negative total")))
    assert caught.value.attempts == 1
    assert isinstance(caught.value.__cause__, Reject)
    assert unacked_values(topic) == [0]


def test_a_handler_sets_the_delay_of_the_next_attempt(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 3)
    worker = Worker(1, RetryLater("1ms"), times=2)
    consume(topic, runtime, until="end").run(worker, retry=ENDLESS)
    assert [attempt for value, attempt in worker.attempts if value == 1] == [1, 2, 3]


def test_to_retry_later_counts_as_an_attempt(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 1)
    worker = Worker(0, RetryLater("1ms"))
    policy = Retry(attempts=3, first="1h", max="1h")
    consume(topic, runtime, until="end").run(worker, retry=policy, on_failed="skip")
    assert worker.attempts == [(0, 1), (0, 2), (0, 3)]


def test_a_loop_raises_for_a_rejected_delivery_and_can_skip_it(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with consume(topic, runtime, until="end", attempts=5) as consumer:
        first = next(iter(consumer))
        first.reject("negative total")
        first.reject("negative total")
        with pytest.raises(DeliveryFailed) as caught:
            next(iter(consumer))
        caught.value.delivery.ack()
    assert unacked_values(topic) == []


def test_an_acknowledged_delivery_cannot_be_rejected(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with consume(topic, runtime, until="end") as consumer:
        delivery = next(iter(consumer))
        delivery.ack()
        with pytest.raises(Error, match="was acknowledged before"):
            delivery.reject("too late")


def test_a_rejected_delivery_of_a_partition_that_was_revoked_is_for_the_next_owner(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with consume(topic, runtime, until="end") as consumer:
        delivery = next(iter(consumer))
        name = delivery.id.partition("@")[0]
        consumer._session.drop(name, consumer._session.machine.scheduler.units[name].epoch)
        delivery.reject("too late")
        assert delivery.resolution is Resolution.NACKED
    assert unacked_values(topic) == [0]


def test_a_simulated_handler_decides_as_a_real_one_does() -> None:
    world = GroupWorld(seed=1)
    world.topic("orders", partitions=1)
    worker = Worker(4, Reject("negative total"))
    later = Worker(2, RetryLater("20s"), times=1)

    def handle(delivery: Delivery[Any]) -> None:
        worker(delivery)
        later(delivery)

    world.process("a").consumer("billing", "orders", handler=handle)
    for value in range(6):
        world.push("orders", value, key=f"k{value}")
    world.run(10)
    assert (2, 2) not in later.attempts
    world.run(15)
    assert (2, 2) in later.attempts
    assert world.checks.given_up == ["orders/0.0@4"]
