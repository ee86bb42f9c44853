"""Handlers that a consumer calls, here and in a thread of their own."""

from __future__ import annotations

import os
import queue
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import DeliveryFailed, Error, HubClosed, InvalidValue
from tailrace.group.chunk import Chunk, Fate
from tailrace.group.delivery import Delivery
from tailrace.group.handlers import call_each
from tailrace.message import Partition
from tailrace.topic.topic import Topic
from tests.unit.group.consuming import left, push
from tests.unit.group.single_owner import SingleOwner, consume
from tests.waiting import until


def refuse(delivery: Delivery[Any]) -> None:
    raise ValueError("never")


def test_a_handler_is_called_until_shutdown(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    got: list[int] = []
    deliveries = consume(topic, runtime)

    def handler(delivery: Delivery[Any]) -> None:
        got.append(delivery.value)
        if len(got) == 10:
            deliveries.shutdown()

    deliveries.run(handler)
    assert sorted(got) == list(range(10))
    assert runtime.left
    assert left(topic) == []


def test_a_handler_that_raises_gets_the_message_again(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 4 and delivery.attempt == 1:
            raise ValueError("not yet")
        got.append(delivery.value)

    consume(topic, runtime, until="end").run(handler)
    assert sorted(got) == list(range(10))


class Owner:
    """Notes for how long a delivery is given back."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []

    def ack(self, offset: int, wait: bool) -> None:
        raise AssertionError

    def nack(self, offset: int, delay_s: float) -> Fate:
        self.delays_s.append(delay_s)
        return Fate.AGAIN


def test_a_message_comes_again_later_each_time_until_every_ten_seconds() -> None:
    owner = Owner()
    chunk = Chunk.listed(Partition("orders", 0, 0), 0, 1, [0], [b"k"])
    chunk.owner, chunk.values = owner, [b""]
    call_each([Delivery(chunk, 0, attempt) for attempt in range(1, 10)], refuse, None)
    assert owner.delays_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10])


def test_a_handler_that_always_raises_ends_the_run_with_its_reason(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 4:
            raise ValueError("never")

    with pytest.raises(DeliveryFailed) as caught:
        consume(topic, runtime, until="end", attempts=2).run(handler)
    assert isinstance(caught.value.__cause__, ValueError)
    assert 4 in left(topic)


def test_a_consumer_in_a_thread_of_its_own_ends_by_shutdown(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    done = threading.Event()
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        got.append(delivery.value)
        if len(got) == 10:
            done.set()

    deliveries = consume(topic, runtime).start(handler)
    assert done.wait(10)
    deliveries.shutdown()
    assert runtime.left
    assert left(topic) == []


def test_what_ends_a_consumer_in_a_thread_is_raised_by_shutdown(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    deliveries = consume(topic, runtime, attempts=1).start(refuse)
    until(lambda: not deliveries.running)
    with pytest.raises(DeliveryFailed):
        deliveries.shutdown()
    assert deliveries.wait()


def test_leaving_a_block_ends_a_consumer_that_was_started_in_it(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    got: list[int] = []
    done = threading.Event()

    def handler(delivery: Delivery[Any]) -> None:
        got.append(delivery.value)
        if len(got) == 10:
            done.set()

    with consume(topic, runtime) as deliveries:
        deliveries.start(handler)
        assert done.wait(10)
    assert runtime.left
    assert left(topic) == []


def test_what_ends_a_consumer_in_a_thread_is_raised_by_wait_and_then_no_more(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    deliveries = consume(topic, runtime, attempts=1).start(refuse)
    with pytest.raises(DeliveryFailed) as caught:
        deliveries.wait("10s")
    assert isinstance(caught.value.__cause__, ValueError)
    assert runtime.left
    assert deliveries.wait("0s")
    deliveries.shutdown()


def test_what_a_handler_raises_and_what_ends_a_consumer_is_logged(
    topic: Topic[Any], runtime: SingleOwner, caplog: pytest.LogCaptureFixture
) -> None:
    push(topic, 1)
    deliveries = consume(topic, runtime, attempts=2).start(refuse)
    with pytest.raises(DeliveryFailed):
        deliveries.wait("10s")
    *refused, ended = [record for record in caplog.records if record.name == "tailrace.group"]
    assert len(refused) == 2
    assert all("<Delivery orders/0." in record.getMessage() for record in refused)
    assert all("ValueError: never" in (record.exc_text or "") for record in refused)
    assert ended.getMessage() == "a consumer of billing has ended"
    assert "DeliveryFailed" in (ended.exc_text or "")


def test_a_consumer_in_a_thread_runs_until_its_end_is_waited_for(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    entered, leave = threading.Event(), threading.Event()

    def handler(delivery: Delivery[Any]) -> None:
        entered.set()
        assert leave.wait(10)

    deliveries = consume(topic, runtime, limit=1)
    running = [deliveries.running]
    deliveries.start(handler)
    assert entered.wait(10)
    assert not deliveries.wait("1ms")
    running.append(deliveries.running)
    leave.set()
    assert deliveries.wait()
    running.append(deliveries.running)
    assert running == [False, True, False]
    assert left(topic) == []


def test_there_is_nothing_to_wait_for_without_start_and_in_a_handler(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    deliveries = consume(topic, runtime, attempts=1, until="end")
    with pytest.raises(Error, match="nothing to wait for"):
        deliveries.wait()
    deliveries.start(lambda _: deliveries.wait())
    with pytest.raises(DeliveryFailed) as caught:
        deliveries.wait("10s")
    assert "nothing to wait for" in str(caught.value.__cause__)


def test_a_consumer_is_started_once(topic: Topic[Any], runtime: SingleOwner) -> None:
    deliveries = consume(topic, runtime, until="end").start(refuse)
    assert deliveries.wait("10s")
    with pytest.raises(Error, match="was started before"):
        deliveries.start(refuse)


def test_a_signal_ends_a_consumer_that_the_main_thread_waits_for(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    deliveries = consume(topic, runtime)
    before = signal.signal(signal.SIGUSR1, lambda *_: deliveries.shutdown())
    try:
        deliveries.start(lambda _: os.kill(os.getpid(), signal.SIGUSR1))
        assert deliveries.wait("10s")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert left(topic) == []


def test_what_failed_is_passed_over_when_on_failed_acknowledges_it(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 30)
    got: list[int] = []
    parked: dict[int, object] = {}

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value % 10 == 4:
            raise ValueError(delivery.value)
        got.append(delivery.value)

    def park(failed: DeliveryFailed) -> None:
        parked[failed.delivery.value] = failed.__cause__
        failed.delivery.ack()

    consume(topic, runtime, until="end", attempts=2).run(handler, on_failed=park)
    assert {value: repr(cause) for value, cause in parked.items()} == {
        value: f"ValueError({value})" for value in (4, 14, 24)
    }
    assert sorted(got) == [n for n in range(30) if n % 10 != 4]
    assert left(topic) == []


def test_what_failed_and_is_not_acknowledged_holds_up_its_key_alone(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 30)
    failures: list[str | None] = []

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value in (4, 11):
            raise ValueError("never")

    deliveries = consume(topic, runtime, until="end", attempts=1)
    deliveries.start(handler, on_failed=lambda failed: failures.append(failed.key))
    assert deliveries.wait("10s")
    assert sorted(map(str, failures)) == ["k1", "k4"]
    assert left(topic) == [4, 9, 11, 14, 16, 19, 21, 24, 26, 29]


def test_what_on_failed_raises_ends_the_run(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 1)

    def give_up(failed: DeliveryFailed) -> None:
        raise KeyError(failed.key)

    with pytest.raises(KeyError, match="k0"):
        consume(topic, runtime, until="end", attempts=1).run(refuse, on_failed=give_up)
    assert runtime.left
    assert left(topic) == [0]


def test_a_failure_is_not_blamed_on_what_a_handler_raised_for_another_message(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 2, keys=2)

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 0 and delivery.attempt == 1:
            raise ValueError("not yet")
        if delivery.value == 1:
            delivery.nack()

    with pytest.raises(DeliveryFailed) as caught:
        consume(topic, runtime, until="end", attempts=2).run(handler)
    assert (caught.value.key, caught.value.__cause__) == ("k1", None)


async def awaited(_failed: DeliveryFailed) -> None:
    raise AssertionError("nobody awaits it")


@pytest.mark.parametrize("on_failed", [awaited, "park"])
def test_what_cannot_be_called_is_refused_as_on_failed(
    topic: Topic[Any], runtime: SingleOwner, on_failed: Any
) -> None:
    deliveries = consume(topic, runtime, until="end")
    for way in (deliveries.run, deliveries.start):
        with pytest.raises(InvalidValue, match="on_failed"):
            way(refuse, on_failed=on_failed)
    assert not runtime.told


def test_what_a_handler_acknowledged_before_it_raised_is_done(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 3)

    def handler(delivery: Delivery[Any]) -> None:
        delivery.ack()
        raise ValueError("too late")

    consume(topic, runtime, ack="manual", until="end", attempts=1).run(handler)
    assert left(topic) == []


def test_a_hub_that_is_closed_under_a_started_consumer_is_said_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        topic = hub.create_topic("orders", int, partitions=1)
        topic.push(1)
        handled: queue.SimpleQueue[int] = queue.SimpleQueue()
        consumer = topic.tail(group="billing").start(lambda each: handled.put(each.value))
        assert handled.get(timeout=60) == 1
    with pytest.raises(HubClosed):
        consumer.wait("1m")
    [told] = [record for record in caplog.records if "has ended" in record.message]
    assert told.levelname == "WARNING"
    assert told.exc_info is None
