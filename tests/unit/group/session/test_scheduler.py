"""The scheduler of a session: turns of units, and the ends of a wait."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NoReturn

import pytest

from tailrace.backend.contract import Transaction
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.handed_out import read_handed_out
from tailrace.errors import BackendUnavailable, CorruptBatch
from tailrace.group.protocol.events import Progressed
from tailrace.group.session.session_unit import SessionUnit
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.faulty_backend import FaultyBackend
from tests.support.groups import for_each, mark
from tests.support.topics import push
from tests.support.waiting import in_thread, until
from tests.unit.group.session.one_unit import UNIT, WHERE


def test_units_take_turns(backend: FaultyBackend, runtime: FakeRuntime) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=4)
    topic.push_many([(f"k{n}", n) for n in range(400)])
    seen: list[int] = []
    with consume(topic, runtime) as consumer:
        for delivery in consumer:
            seen.append(delivery.partition)
            time.sleep(0.011)  # a slow handler: longer than a turn
            if len(seen) == 8:
                break
    assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_error_of_an_unreadable_unit_is_raised_once_and_others_continue(
    backend: FaultyBackend, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    topic.push_many([(f"k{n}", n) for n in range(40)])
    read = backend.log.read

    def damaged(partition: Partition, *args: Any) -> Any:
        if partition.number == 0:
            raise CorruptBatch(str(partition), 0, 1, "0.log", "checksum")
        return read(partition, *args)

    monkeypatch.setattr(backend.log, "read", damaged)
    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        got: list[int] = []
        with pytest.raises(CorruptBatch):
            got += [delivery.partition for delivery in consumer]
        got += [delivery.partition for delivery in consumer]
    assert set(got) <= {1}
    assert topic.storage_topics[0].ends[1] == mark(backend, Partition("orders", 0, 1))


def test_a_unit_that_cannot_be_read_now_is_retried_after_a_pause(
    topic: Topic[Any],
    runtime: FakeRuntime,
    backend: FaultyBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push(topic, 10)
    tries: list[float] = []

    def fail(*_: object) -> NoReturn:
        tries.append(time.monotonic())
        raise BackendUnavailable("the disk is away")

    with consume(topic, runtime, limit=10) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(backend.log, "read", fail)
            thread = in_thread(lambda: for_each(consumer, lambda _: None))
            until(lambda: len(tries) >= 3)
        thread.join()
        assert consumer.stats().delivered == 10
    assert all(later - earlier > 0.1 for earlier, later in pairwise(tries))


def test_a_session_continues_soon_after_its_expired_lease_was_extended(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    runtime.until_s = float("-inf")
    with consume(topic, runtime, limit=1) as consumer:
        thread = in_thread(lambda: for_each(consumer, lambda _: None))
        until(lambda: consumer._session._paused)
        runtime.until_s = float("inf")
        thread.join(10)
        assert consumer.stats().delivered == 1


def test_an_idle_session_does_not_read_the_backend_until_it_is_woken(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    got: list[int] = []
    consumer = consume(topic, runtime)
    thread = in_thread(lambda: consumer.run(lambda delivery: got.append(delivery.value)))
    until(lambda: runtime.awaited == {WHERE: 0})
    push(topic, 3)
    assert got == []
    runtime.wake_session()
    until(lambda: got == [0, 1, 2])
    until(lambda: runtime.awaited == {WHERE: 3})
    consumer.shutdown()
    thread.join(10)
    assert not thread.is_alive()
    assert mark(backend) == 3


def test_a_watched_unit_is_not_watched_again_for_each_acknowledgement(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    awaits: list[Mapping[Partition, int]] = []
    runtime.on_await = awaits.append
    push(topic, 5)
    with consume(topic, runtime, ack="manual", idle_timeout="10ms") as consumer:
        for delivery in list(consumer):
            delivery.ack()
            assert list(consumer) == []
        assert len(awaits) == 1
        push(topic, 1)
        runtime.wake_session()
        assert len(list(consumer)) == 1
        assert len(awaits) == 2


def test_records_pushed_between_the_check_and_the_wait_are_not_missed(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    pushed = threading.Event()

    def push_first(_: object) -> None:
        if not pushed.is_set():
            pushed.set()
            push(topic, 1)

    runtime.on_await = push_first
    with consume(topic, runtime, idle_timeout="10s") as consumer:
        assert next(iter(consumer)).value == 0


def test_a_sealed_unit_that_is_all_acknowledged_is_reported_as_finished(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 5)
    topic.scale(2)
    with consume(topic, runtime, units=[UNIT], idle_timeout="10ms") as consumer:
        assert [delivery.value for delivery in consumer] == list(range(5))
        assert [event.mark for event in runtime.of(Progressed) if event.finished] == [5]
    assert read_handed_out(backend.table, "billing", UNIT) == 0


def test_a_unit_sealed_while_it_is_idle_is_finished_after_a_wake(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    consumer = consume(topic, runtime, units=[UNIT])
    thread = in_thread(lambda: consumer.run(lambda delivery: None))
    until(lambda: runtime.awaited == {WHERE: 0})
    topic.scale(2)
    runtime.wake_session()
    until(lambda: [e for e in runtime.of(Progressed) if e.finished])
    runtime.wake_session()
    until(lambda: WHERE not in runtime.awaited)
    consumer.shutdown()
    thread.join(10)


def test_a_signal_handler_may_shut_a_session_down_at_any_point_of_the_loop(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 2)
    consumer = consume(topic, runtime)
    before = signal.signal(signal.SIGALRM, lambda *_: consumer.shutdown())
    try:
        with consumer:
            next(iter(consumer))
            with runtime.joined.state.lock:
                signal.raise_signal(signal.SIGALRM)
            assert list(consumer) == []
        consumer = consume(topic, FakeRuntime(runtime.backend))
        with consumer:
            next(iter(consumer))
            signal.setitimer(signal.ITIMER_REAL, 0.02)  # while it waits for more
            assert list(consumer) == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_failed_check_is_retried(
    topic: Topic[Any], runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records pushed after the unit was read to its end and before it is watched."""
    inspect = SessionUnit.inspect
    failing = [True]

    def failing_once(owned: SessionUnit) -> None:
        if failing:
            failing.pop()
            raise BackendUnavailable("the disk is away")
        inspect(owned)

    def push_first(_: object) -> None:
        if failing:
            push(topic, 1)

    monkeypatch.setattr(SessionUnit, "inspect", failing_once)
    runtime.on_await = push_first
    with consume(topic, runtime, limit=1) as consumer:
        assert [delivery.value for delivery in consumer] == [0]


def test_a_unit_at_its_stop_offset_is_left_alone_whatever_is_pushed(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 3)
    with consume(topic, runtime, until="end") as consumer:
        for delivery in consumer:
            push(topic, 1, first=100 + delivery.value)
    assert runtime.awaited == {}


def test_timers_do_not_pile_up(topic: Topic[Any], runtime: FakeRuntime) -> None:
    topic.push("later", key="a")
    topic.push("soon", key="b")

    def nack(delivery: Delivery[Any]) -> None:
        time.sleep(0.002)  # the unit has nothing to deliver meanwhile
        delivery.nack("1h" if delivery.value == "later" else "1ms")

    with (
        consume(topic, runtime, ack="manual", attempts=1000, limit=50) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        for delivery in consumer:
            pool.submit(nack, delivery)
        assert len(consumer._session.machine.scheduler._timers) <= 3


def test_a_unit_whose_final_progress_cannot_be_stored_pauses_while_others_continue(
    backend: FaultyBackend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    push(topic, 200)
    tries = []

    def fail(transaction: Transaction) -> None:
        if transaction.fence is not None and transaction.fence.name.endswith(UNIT):
            tries.append(1)
            raise BackendUnavailable("the disk is away")

    working = backend.before
    with consume(topic, runtime, idle_timeout="20ms") as consumer:
        iterator = iter(consumer)
        next(iterator)
        backend.before = fail
        runtime.joined.drain(UNIT, runtime.epochs[UNIT])
        for _ in iterator:
            runtime.joined.interrupt()  # a turn is over after each message
        assert 0 < len(tries) < 20
        backend.before = working
