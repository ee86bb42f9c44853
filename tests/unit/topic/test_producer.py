"""The pipelined producer: order, batches, back-pressure, failures."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import tailrace
from tailrace.backend.contract import Transaction
from tailrace.errors import (
    BackendUnavailable,
    DiskFull,
    EncodeError,
    HubClosed,
    InvalidValue,
    MessageTooLarge,
)
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.topic.pending import Pending
from tailrace.topic.producer import BATCHES_MAX, Producer
from tests.support.faulty_backend import FaultyBackend, once
from tests.support.topics import Order, all_values, nothing_stored
from tests.support.waiting import until

WAIT_S = 30


def full() -> None:
    raise DiskFull("no room")


@pytest.mark.parametrize("count", [1, 100, 2000])
def test_each_push_gets_the_receipt_of_its_message(orders: Topic[Order], count: int) -> None:
    with orders.producer() as producer:
        pending = [producer.push(Order(i), key=f"k{i % 7}") for i in range(count)]
    messages = [orders.read(*each.result(0)[1:4]) for each in pending]
    assert [message.value.id for message in messages] == list(range(count))
    assert [message.key for message in messages] == [f"k{i % 7}" for i in range(count)]
    assert producer.last_number == count


@pytest.mark.parametrize("count", [3, 500])
def test_headers_and_times_go_with_their_messages(orders: Topic[Order], count: int) -> None:
    with orders.producer() as producer:
        pending = [
            producer.push(Order(i), headers={"i": str(i)} if i % 2 else None, timestamp=i)
            for i in range(count)
        ]
    for i, each in enumerate(pending):
        message = orders.read(*each.result()[1:4])
        assert message.headers == ({"i": b"%d" % i} if i % 2 else {})
        assert each.result().timestamp == message.timestamp_ms == i


def test_a_batch_waits_for_its_linger_unless_it_is_flushed(orders: Topic[Order]) -> None:
    with orders.producer(linger="1m") as producer:
        pending = producer.push(Order(1))
        assert not pending.done()
        assert nothing_stored(orders)
        producer.flush(WAIT_S)
        assert pending.done()


def test_a_batch_is_sent_when_its_linger_is_over(orders: Topic[Order]) -> None:
    with orders.producer(linger="1ms") as producer:
        assert producer.push(Order(1)).result(WAIT_S).storage == 0


def test_a_full_batch_is_sent_without_waiting(orders: Topic[Order]) -> None:
    with orders.producer(linger="1m", batch_bytes=1000) as producer:
        pending = [producer.push(Order(i)) for i in range(100)]
        assert pending[0].result(WAIT_S).storage == 0


def test_flushing_nothing_and_closing_twice_do_nothing(orders: Topic[Order]) -> None:
    producer = orders.producer()
    producer.flush()
    producer.close()
    producer.close()
    with pytest.raises(HubClosed, match="closed"):
        producer.push(Order(1))


def test_an_exception_in_the_block_still_sends_the_pushed_messages(orders: Topic[Order]) -> None:
    def fail() -> None:
        with orders.producer(linger="1m") as producer:
            producer.push(Order(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert all_values(orders) == [Order(1)]


def test_order_per_key_holds_over_switches_between_batches(
    backend: FaultyBackend, hub: Hub
) -> None:
    topic = hub.create_topic("t", bytes)
    other = hub.topic("t")
    attempts = itertools.count()

    def scale_at_each_third_attempt(transaction: Transaction) -> None:
        attempt = next(attempts)
        if attempt % 3 == 0:
            other.scale([12, 8, 6, 1, 4][attempt % 5])

    backend.before = scale_at_each_third_attempt
    with topic.producer(batch_bytes=400) as producer:
        for i in range(150):
            producer.push(b"%d" % i, key=f"k{i % 5}")
            if i % 29 == 0:
                producer.flush(WAIT_S)
    backend.before = void
    assert len(topic.storage_topics) > 3
    read = defaultdict(list)
    for value in map(int, all_values(topic)):
        read[value % 5].append(value)
    assert read == {k: list(range(k, 150, 5)) for k in range(5)}


def test_a_failed_batch_fails_everything_behind_it(
    backend: FaultyBackend, orders: Topic[Order]
) -> None:
    backend.before = once(full)
    producer = orders.producer(linger="1m", batch_bytes=100)
    pending = [producer.push(Order(i), key="k") for i in range(2)]
    assert isinstance(pending[0].exception(WAIT_S), DiskFull)
    for each in pending:
        with pytest.raises(DiskFull):
            each.result(WAIT_S)
    for call in (lambda: producer.push(Order(9)), producer.flush, producer.close):
        with pytest.raises(DiskFull):
            call()
    assert nothing_stored(orders)
    with orders.producer() as another:
        another.push(Order(10))
    assert all_values(orders) == [Order(10)]


def test_a_failure_is_raised_by_the_with_block(
    backend: FaultyBackend, orders: Topic[Order]
) -> None:
    backend.before = once(full)
    with pytest.raises(DiskFull), orders.producer() as producer:
        producer.push(Order(1))


def test_an_invalid_message_does_not_affect_others(orders: Topic[Order]) -> None:
    with orders.producer() as producer:
        producer.push(Order(1))
        with pytest.raises(EncodeError):
            producer.push("text")  # type: ignore[arg-type]
        with pytest.raises(MessageTooLarge):
            producer.push(Order(2), key="x" * (1 << 20))
        producer.push(Order(3))
    assert sorted(order.id for order in all_values(orders)) == [1, 3]


def test_a_push_waits_while_the_buffer_of_the_producer_is_full(
    backend: FaultyBackend, hub: Hub
) -> None:
    topic = hub.create_topic("t", bytes, partitions=1)
    go = threading.Event()
    backend.before = lambda transaction: void(go.wait(WAIT_S))
    pending: list[Pending] = []

    def push() -> None:
        for i in range(BATCHES_MAX + 5):
            pending.append(producer.push(b"%d" % i))

    with topic.producer(batch_bytes=1) as producer:
        thread = threading.Thread(target=push)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert len(pending) <= BATCHES_MAX
        go.set()
        thread.join(WAIT_S)
    assert all_values(topic) == [b"%d" % i for i in range(BATCHES_MAX + 5)]


def test_waiting_for_a_receipt_may_be_limited(backend: FaultyBackend, orders: Topic[Order]) -> None:
    go = threading.Event()
    backend.before = lambda transaction: void(go.wait(WAIT_S))
    with orders.producer() as producer:
        pending = producer.push(Order(1))
        for wait in (pending.result, pending.exception, producer.flush):
            with pytest.raises(TimeoutError, match="not stored within"):
                wait(0.001)
        go.set()
        assert pending.exception(WAIT_S) is None


def test_callbacks_are_called_once_whether_added_early_or_late(
    orders: Topic[Order], caplog: pytest.LogCaptureFixture
) -> None:
    called: list[tuple[str, int]] = []

    def fail(pending: Pending) -> None:
        raise RuntimeError("of the user")

    with orders.producer(linger="1m") as producer, caplog.at_level(logging.ERROR):
        pending = producer.push(Order(1))
        pending.add_done_callback(fail)
        pending.add_done_callback(lambda done: called.append(("early", done.result(0).storage)))
        producer.flush(WAIT_S)
    pending.add_done_callback(lambda done: called.append(("late", done.result(0).storage)))
    assert called == [("early", 0), ("late", 0)]
    assert "a callback of a pipelined push failed" in caplog.text


@pytest.mark.parametrize("batch_bytes", [0, -1])
def test_a_batch_size_out_of_range_is_refused(orders: Topic[Order], batch_bytes: int) -> None:
    with pytest.raises(InvalidValue, match="batch_bytes"):
        orders.producer(batch_bytes=batch_bytes)


def test_a_forked_child_cannot_use_its_parents_producer(orders: Topic[Order]) -> None:
    with orders.producer(linger="1m") as producer:
        pending = producer.push(Order(1))
        child = os.fork()
        if child == 0:
            refused = isinstance(pending.exception(0), HubClosed)
            try:
                producer.push(Order(2))
            except HubClosed:
                os._exit(0 if refused else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all_values(orders) == [Order(1)]


def test_a_program_that_exits_without_closing_has_sent_all(tmp_path: Path) -> None:
    program = """
import sys, tailrace
topic = tailrace.open(sys.argv[1], sync="none").create_topic("t", bytes)
producer = topic.producer(linger="1m")
for i in range(100): producer.push(b"x")
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "hub"], check=True, timeout=WAIT_S)
    with tailrace.open(tmp_path / "hub") as hub:
        assert len(all_values(hub.topic("t", bytes))) == 100


def test_a_producer_of_a_closed_hub_has_sent_all_and_refuses_pushes(
    hub: Hub, orders: Topic[Order]
) -> None:
    producer = orders.producer(linger="1m")
    pending = producer.push(Order(1))
    hub.close()
    assert pending.result(0).topic == orders.name
    with pytest.raises(HubClosed):
        producer.push(Order(2))


def _push(producer: Producer[Order], _pending: Pending) -> None:
    producer.push(Order(2))


def _flush(producer: Producer[Order], _pending: Pending) -> None:
    producer.flush(WAIT_S)


def _result(_producer: Producer[Order], pending: Pending) -> None:
    pending.result(WAIT_S)


def _exception(_producer: Producer[Order], pending: Pending) -> None:
    raise pending.exception(WAIT_S) or AssertionError("it was stored")


@pytest.mark.parametrize("report", [_push, _flush, _result, _exception])
def test_closing_the_hub_does_not_raise_again_what_a_producer_has_reported(
    backend: FaultyBackend,
    hub: Hub,
    orders: Topic[Order],
    report: Callable[[Producer[Order], Pending], None],
) -> None:
    producer = orders.producer(linger="0s")
    backend.before = once(full)
    pending = producer.push(Order(1))
    until(pending.done)
    with pytest.raises(DiskFull):
        report(producer, pending)
    hub.close()
    hub.close()


def test_closing_the_hub_raises_once_what_no_caller_was_told(
    backend: FaultyBackend, hub: Hub, orders: Topic[Order]
) -> None:
    producer = orders.producer(linger="1m")
    backend.before = once(full)
    producer.push(Order(1))
    with pytest.raises(DiskFull):
        hub.close()
    hub.close()


def test_a_producer_whose_backend_is_closed_fails(hub: Hub, orders: Topic[Order]) -> None:
    producer = orders.producer(linger="1m")
    pending = producer.push(Order(1))
    hub.backend.close()
    with pytest.raises(BackendUnavailable):
        producer.flush(WAIT_S)
    assert isinstance(pending.exception(0), HubClosed)


def void(_: object) -> None:
    """Throw a result away."""
