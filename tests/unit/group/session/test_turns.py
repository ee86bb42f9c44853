"""Whose turn it is, and what ends the wait for one."""

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
from tailrace.errors import BackendUnavailable, CorruptBatch
from tailrace.group.delivery import Delivery
from tailrace.group.events import Progressed
from tailrace.group.owned import Owned
from tailrace.group.reach import read_reach
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.topic.topic import Topic
from tests.unit.group.consuming import for_each, push
from tests.unit.group.session.one_unit import UNIT, WHERE, in_thread, mark
from tests.unit.group.single_owner import SingleOwner, consume
from tests.unit.topic.faults import FaultyBackend
from tests.waiting import until


def test_units_take_turns(backend: FaultyBackend, runtime: SingleOwner) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=4)
    topic.push_many([(f"k{n}", n) for n in range(400)])
    seen: list[int] = []
    with consume(topic, runtime) as deliveries:
        for delivery in deliveries:
            seen.append(delivery.partition)
            time.sleep(0.011)  # a slow handler: longer than a turn
            if len(seen) == 8:
                break
    assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_what_makes_a_unit_unreadable_is_raised_once_and_others_go_on(
    backend: FaultyBackend, runtime: SingleOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    topic.push_many([(f"k{n}", n) for n in range(40)])
    read = backend.log.read

    def damaged(partition: Partition, *args: Any) -> Any:
        if partition.number == 0:
            raise CorruptBatch(str(partition), 0, 1, "0.log", "checksum")
        return read(partition, *args)

    monkeypatch.setattr(backend.log, "read", damaged)
    with consume(topic, runtime, idle_timeout="10ms") as deliveries:
        got: list[int] = []
        with pytest.raises(CorruptBatch):
            got += [delivery.partition for delivery in deliveries]
        got += [delivery.partition for delivery in deliveries]
    assert set(got) <= {1}
    assert topic.storage_topics[0].ends[1] == mark(backend, Partition("orders", 0, 1))


def test_a_unit_that_cannot_be_read_now_rests_for_a_while_and_then_goes_on(
    topic: Topic[Any],
    runtime: SingleOwner,
    backend: FaultyBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push(topic, 10)
    tries: list[float] = []

    def fail(*_: object) -> NoReturn:
        tries.append(time.monotonic())
        raise BackendUnavailable("the disk is away")

    with consume(topic, runtime, limit=10) as deliveries:
        with monkeypatch.context() as patch:
            patch.setattr(backend.log, "read", fail)
            thread = in_thread(lambda: for_each(deliveries, lambda _: None))
            until(lambda: len(tries) >= 3)
        thread.join()
        assert deliveries.stats().delivered == 10
    assert all(later - earlier > 0.1 for earlier, later in pairwise(tries))


def test_a_session_whose_lease_was_over_goes_on_soon_after_it_was_extended(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    runtime.until_s = float("-inf")
    with consume(topic, runtime, limit=1) as deliveries:
        thread = in_thread(lambda: for_each(deliveries, lambda _: None))
        until(lambda: deliveries._session._paused)
        runtime.until_s = float("inf")
        thread.join(10)
        assert deliveries.stats().delivered == 1


def test_an_idle_session_asks_the_backend_for_nothing_until_it_is_woken(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    got: list[int] = []
    deliveries = consume(topic, runtime)
    thread = in_thread(lambda: deliveries.run(lambda delivery: got.append(delivery.value)))
    until(lambda: runtime.awaited == {WHERE: 0})
    push(topic, 3)
    assert got == []
    runtime.tide()
    until(lambda: got == [0, 1, 2])
    until(lambda: runtime.awaited == {WHERE: 3})
    deliveries.shutdown()
    thread.join(10)
    assert not thread.is_alive()
    assert mark(backend) == 3


class Watchful(SingleOwner):
    """Counts how often it is asked to watch over something."""

    def __init__(self, backend: FaultyBackend) -> None:
        super().__init__(backend)
        self.asked = 0

    def await_records(self, session: str, ends: Mapping[Partition, int]) -> None:
        self.asked += 1
        super().await_records(session, ends)


def test_a_unit_that_is_watched_over_is_not_watched_anew_for_each_acknowledgement(
    topic: Topic[Any], backend: FaultyBackend
) -> None:
    runtime = Watchful(backend)
    push(topic, 5)
    with consume(topic, runtime, ack="manual", idle_timeout="10ms") as deliveries:
        for delivery in list(deliveries):
            delivery.ack()
            assert list(deliveries) == []
        assert runtime.asked == 1
        push(topic, 1)
        runtime.tide()
        assert len(list(deliveries)) == 1
        assert runtime.asked == 2


def test_records_pushed_between_the_look_and_the_wait_are_not_missed(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    original = runtime.await_records
    pushed = threading.Event()

    def push_first(session: str, ends: Any) -> None:
        original(session, ends)
        if not pushed.is_set():
            pushed.set()
            push(topic, 1)

    runtime.await_records = push_first  # type: ignore[method-assign]
    with consume(topic, runtime, idle_timeout="10s") as deliveries:
        assert next(iter(deliveries)).value == 0


def test_a_sealed_unit_that_is_all_acknowledged_is_reported_as_finished(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 5)
    topic.scale(2)
    with consume(topic, runtime, units=[UNIT], idle_timeout="10ms") as deliveries:
        assert [delivery.value for delivery in deliveries] == list(range(5))
        assert [event.mark for event in runtime.of(Progressed) if event.finished] == [5]
    assert read_reach(backend.table, "billing", UNIT) == 0


def test_a_unit_sealed_while_it_is_idle_is_finished_after_a_wake(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    deliveries = consume(topic, runtime, units=[UNIT])
    thread = in_thread(lambda: deliveries.run(lambda delivery: None))
    until(lambda: runtime.awaited == {WHERE: 0})
    topic.scale(2)
    runtime.tide()
    until(lambda: [e for e in runtime.of(Progressed) if e.finished])
    runtime.tide()
    until(lambda: WHERE not in runtime.awaited)
    deliveries.shutdown()
    thread.join(10)


def test_a_signal_handler_may_shut_it_down_wherever_the_loop_is(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 2)
    deliveries = consume(topic, runtime)
    before = signal.signal(signal.SIGALRM, lambda *_: deliveries.shutdown())
    try:
        with deliveries:
            next(iter(deliveries))
            with runtime.joined.share.lock:
                signal.raise_signal(signal.SIGALRM)
            assert list(deliveries) == []
        deliveries = consume(topic, SingleOwner(runtime.backend))
        with deliveries:
            next(iter(deliveries))
            signal.setitimer(signal.ITIMER_REAL, 0.02)  # while it waits for more
            assert list(deliveries) == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_look_that_failed_is_made_again(
    topic: Topic[Any], runtime: SingleOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was pushed before anybody watched, and after it was read to the end."""
    look, watch = Owned.look, runtime.await_records
    failing = [True]

    def failing_once(owned: Owned) -> None:
        if failing:
            failing.pop()
            raise BackendUnavailable("the disk is away")
        look(owned)

    def push_first(session: str, ends: Mapping[Partition, int]) -> None:
        if failing:
            push(topic, 1)
        watch(session, ends)

    monkeypatch.setattr(Owned, "look", failing_once)
    monkeypatch.setattr(runtime, "await_records", push_first)
    with consume(topic, runtime, limit=1) as deliveries:
        assert [delivery.value for delivery in deliveries] == [0]


def test_a_unit_at_its_stop_is_left_alone_whatever_is_pushed(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 3)
    with consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            push(topic, 1, first=100 + delivery.value)
    assert runtime.awaited == {}


def test_alarms_do_not_pile_up(topic: Topic[Any], runtime: SingleOwner) -> None:
    topic.push("later", key="a")
    topic.push("soon", key="b")

    def give_back(delivery: Delivery[Any]) -> None:
        time.sleep(0.002)  # the unit has nothing to hand out meanwhile
        delivery.nack("1h" if delivery.value == "later" else "1ms")

    with (
        consume(topic, runtime, ack="manual", attempts=1000, limit=50) as deliveries,
        ThreadPoolExecutor(1) as pool,
    ):
        for delivery in deliveries:
            pool.submit(give_back, delivery)
        assert len(deliveries._session._rota._alarms) <= 3


def test_a_unit_whose_final_progress_cannot_be_stored_rests_while_others_go_on(
    backend: FaultyBackend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    push(topic, 200)
    tries = []

    def fail(transaction: Transaction) -> None:
        if transaction.fence is not None and transaction.fence.name.endswith(UNIT):
            tries.append(1)
            raise BackendUnavailable("the disk is away")

    working = backend.before
    with consume(topic, runtime, idle_timeout="20ms") as deliveries:
        iterator = iter(deliveries)
        next(iterator)
        backend.before = fail
        runtime.joined.drain(UNIT, runtime.epochs[UNIT])
        for _ in iterator:
            runtime.joined.rouse()  # a turn is over after each message
        assert 0 < len(tries) < 20
        backend.before = working
