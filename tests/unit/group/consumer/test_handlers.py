"""Handlers that a consumer calls, in this thread and in its own."""

from __future__ import annotations

import functools
import os
import queue
import signal
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

import tailrace
from tailrace.delivery.delivery import Delivery
from tailrace.errors import DeliveryFailed, Error, HubClosed, InvalidValue
from tailrace.hub.topic import Topic
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.groups import unacked_values
from tests.support.topics import push
from tests.support.waiting import until


def refuse(delivery: Delivery[Any]) -> None:
    raise ValueError("never")


def test_a_handler_is_called_until_shutdown(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 10)
    got: list[int] = []
    consumer = consume(topic, runtime)

    def handler(delivery: Delivery[Any]) -> None:
        got.append(delivery.value)
        if len(got) == 10:
            consumer.shutdown()

    consumer.run(handler)
    assert sorted(got) == list(range(10))
    assert runtime.left
    assert unacked_values(topic) == []


def _takes_nothing() -> None:
    """Cannot be called with a delivery."""


def _takes_two(delivery: Delivery[Any], more: object) -> None:
    """Cannot be called with a delivery alone."""


class _Unknowable:
    """A function whose signature cannot be read: an annotation of it is not defined."""

    def __call__(self, delivery: Delivery[Any]) -> None:
        """Do nothing."""

    @property
    def __signature__(self) -> NoReturn:
        raise NameError("name 'Order' is not defined")


@pytest.mark.parametrize("wrong", [_takes_nothing, _takes_two])
def test_a_handler_that_cannot_take_a_delivery_is_refused_before_it_is_retried(
    topic: Topic[Any], runtime: FakeRuntime, wrong: Any
) -> None:
    push(topic, 1)
    for call in (consume(topic, runtime).run, consume(topic, runtime).start):
        with pytest.raises(InvalidValue, match="a function that takes a delivery"):
            call(wrong)
        with pytest.raises(InvalidValue, match="a function that takes a DeliveryFailed"):
            call(refuse, on_failed=wrong)
    assert unacked_values(topic) == [0]


@pytest.mark.parametrize(
    "handler",
    [
        print,
        str,
        [].append,
        functools.partial(_takes_two, more=1),
        lambda *each: None,
        _Unknowable(),
    ],
)
def test_every_function_that_can_take_a_delivery_is_a_handler(
    topic: Topic[Any], runtime: FakeRuntime, handler: Any
) -> None:
    push(topic, 3)
    consume(topic, runtime, until="end").run(handler)
    assert unacked_values(topic) == []


def test_a_message_is_redelivered_to_a_handler_that_raised(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 4 and delivery.attempt == 1:
            raise ValueError("not yet")
        got.append(delivery.value)

    consume(topic, runtime, until="end").run(handler)
    assert sorted(got) == list(range(10))


def test_a_handler_that_always_raises_ends_the_run_with_its_reason(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 4:
            raise ValueError("never")

    with pytest.raises(DeliveryFailed) as caught:
        consume(topic, runtime, until="end", attempts=2).run(handler)
    assert isinstance(caught.value.__cause__, ValueError)
    assert 4 in unacked_values(topic)


def test_a_consumer_in_a_thread_of_its_own_ends_by_shutdown(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    done = threading.Event()
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        got.append(delivery.value)
        if len(got) == 10:
            done.set()

    consumer = consume(topic, runtime).start(handler)
    assert done.wait(10)
    consumer.shutdown()
    assert runtime.left
    assert unacked_values(topic) == []


def test_the_error_that_ends_a_consumer_in_a_thread_is_raised_by_shutdown(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    consumer = consume(topic, runtime, attempts=1).start(refuse)
    until(lambda: not consumer.running)
    with pytest.raises(DeliveryFailed):
        consumer.shutdown()
    assert consumer.wait()


def test_leaving_a_block_ends_a_consumer_that_was_started_in_it(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    got: list[int] = []
    done = threading.Event()

    def handler(delivery: Delivery[Any]) -> None:
        got.append(delivery.value)
        if len(got) == 10:
            done.set()

    with consume(topic, runtime) as consumer:
        consumer.start(handler)
        assert done.wait(10)
    assert runtime.left
    assert unacked_values(topic) == []


def test_the_error_that_ends_a_consumer_in_a_thread_is_raised_once_by_wait(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    consumer = consume(topic, runtime, attempts=1).start(refuse)
    with pytest.raises(DeliveryFailed) as caught:
        consumer.wait("10s")
    assert isinstance(caught.value.__cause__, ValueError)
    assert runtime.left
    assert consumer.wait("0s")
    consumer.shutdown()


def test_exceptions_of_a_handler_and_the_error_that_ends_a_consumer_are_logged(
    topic: Topic[Any], runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    push(topic, 1)
    consumer = consume(topic, runtime, attempts=2).start(refuse)
    with pytest.raises(DeliveryFailed):
        consumer.wait("10s")
    *refused, ended = [record for record in caplog.records if record.name == "tailrace.group"]
    assert len(refused) == 2
    assert all("<Delivery orders/0." in record.getMessage() for record in refused)
    assert all("ValueError: never" in (record.exc_text or "") for record in refused)
    assert ended.getMessage() == "a consumer of group billing ended"
    assert "DeliveryFailed" in (ended.exc_text or "")


def test_a_consumer_in_a_thread_runs_until_its_end_is_waited_for(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    entered, leave = threading.Event(), threading.Event()

    def handler(delivery: Delivery[Any]) -> None:
        entered.set()
        assert leave.wait(10)

    consumer = consume(topic, runtime, limit=1)
    running = [consumer.running]
    consumer.start(handler)
    assert entered.wait(10)
    assert not consumer.wait("1ms")
    running.append(consumer.running)
    leave.set()
    assert consumer.wait()
    running.append(consumer.running)
    assert running == [False, True, False]
    assert unacked_values(topic) == []


def test_there_is_nothing_to_wait_for_without_start_and_in_a_handler(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    consumer = consume(topic, runtime, attempts=1, until="end")
    with pytest.raises(Error, match="nothing to wait for"):
        consumer.wait()
    consumer.start(lambda _: consumer.wait())
    with pytest.raises(DeliveryFailed) as caught:
        consumer.wait("10s")
    assert "nothing to wait for" in str(caught.value.__cause__)


def test_a_consumer_is_started_once(topic: Topic[Any], runtime: FakeRuntime) -> None:
    consumer = consume(topic, runtime, until="end").start(refuse)
    assert consumer.wait("10s")
    with pytest.raises(Error, match="was started before"):
        consumer.start(refuse)


def test_a_signal_ends_a_consumer_that_the_main_thread_waits_for(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    consumer = consume(topic, runtime)
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.shutdown())
    try:
        consumer.start(lambda _: os.kill(os.getpid(), signal.SIGUSR1))
        assert consumer.wait("10s")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert unacked_values(topic) == []


def test_a_failed_message_is_skipped_when_on_failed_acknowledges_it(
    topic: Topic[Any], runtime: FakeRuntime
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
    assert unacked_values(topic) == []


def test_a_failed_message_that_is_not_acknowledged_blocks_its_key_alone(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 30)
    failures: list[str | None] = []

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value in (4, 11):
            raise ValueError("never")

    consumer = consume(topic, runtime, until="end", attempts=1)
    consumer.start(handler, on_failed=lambda failed: failures.append(failed.key))
    assert consumer.wait("10s")
    assert sorted(map(str, failures)) == ["k1", "k4"]
    assert unacked_values(topic) == [4, 9, 11, 14, 16, 19, 21, 24, 26, 29]


def test_an_exception_in_on_failed_ends_the_run(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 1)

    def give_up(failed: DeliveryFailed) -> None:
        raise KeyError(failed.key)

    with pytest.raises(KeyError, match="k0"):
        consume(topic, runtime, until="end", attempts=1).run(refuse, on_failed=give_up)
    assert runtime.left
    assert unacked_values(topic) == [0]


def test_a_failure_does_not_name_the_exception_of_another_message(
    topic: Topic[Any], runtime: FakeRuntime
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


def test_an_on_failed_that_is_unknown_is_refused(topic: Topic[Any], runtime: FakeRuntime) -> None:
    consumer = consume(topic, runtime, until="end")
    on_failed: Any = "park"
    for way in (consumer.run, consumer.start):
        with pytest.raises(InvalidValue, match="valid: 'stop', 'skip', 'dead-letter' or a func"):
            way(refuse, on_failed=on_failed)
    assert not runtime.posted


def test_a_message_acknowledged_before_its_handler_raised_stays_acknowledged(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 3)

    def handler(delivery: Delivery[Any]) -> None:
        delivery.ack()
        raise ValueError("too late")

    consume(topic, runtime, ack="manual", until="end", attempts=1).run(handler)
    assert unacked_values(topic) == []


def test_a_hub_that_is_closed_under_a_started_consumer_is_logged_in_one_line(
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
    [logged] = [record for record in caplog.records if "ended" in record.message]
    assert logged.levelname == "WARNING"
    assert logged.exc_info is None
