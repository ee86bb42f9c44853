"""A session between its runtime and its consumer: ownership, commits, turns, waiting."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tailrace.backend.contract import Transaction, raise_fence
from tailrace.errors import BackendUnavailable, CorruptBatch, Fenced, HubClosed
from tailrace.group.definition import consumer_name, unit_fence
from tailrace.group.events import Died, Drained, Lost, Progressed, Subscribed, Unsubscribed
from tailrace.group.reach import read_reach
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.settings import HubSettings
from tailrace.topic.ledger import Progress
from tailrace.topic.topic import Topic
from tests.unit.group.single_owner import SingleOwner, consume
from tests.unit.topic.faults import FaultyBackend

UNIT = "orders/0.0"
WHERE = Partition.parse(UNIT)


@pytest.fixture
def backend() -> FaultyBackend:
    return FaultyBackend()


@pytest.fixture
def topic(backend: FaultyBackend) -> Topic[Any]:
    return Hub.from_backend(backend).create_topic("orders", partitions=1)


@pytest.fixture
def runtime(backend: FaultyBackend) -> SingleOwner:
    return SingleOwner(backend)


def push(topic: Topic[Any], count: int, keys: int = 5) -> None:
    topic.push_many([(f"k{n % keys}", n) for n in range(count)])


def mark(backend: FaultyBackend, where: Partition = WHERE) -> int:
    return Progress.load(backend.table, consumer_name("billing"), where).mark


def eventually(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.002)


def in_thread(iterate: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=iterate, daemon=True)
    thread.start()
    return thread


def numbers(deliveries: Iterator[Any], count: int) -> list[int]:
    return [next(deliveries).value for _ in range(count)]


def test_it_subscribes_consumes_and_leaves_with_its_progress_durable(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        assert numbers(iter(deliveries), 10) == list(range(10))
        assert mark(backend) == 0
    assert mark(backend) == 10
    kinds = [type(event) for event in runtime.told]
    assert kinds == [Subscribed, Progressed, Unsubscribed, Progressed, Drained]
    assert runtime.of(Drained)[0].mark == 10
    assert runtime.left


def test_what_was_acknowledged_is_committed_when_the_progress_thread_asks(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        numbers(iter(deliveries), 4)
        assert runtime.session is not None
        runtime.session.save()
        assert mark(backend) == 3
        assert runtime.marks() == {UNIT: 3}


def test_a_drain_ends_only_after_what_is_in_hand_and_then_its_progress_is_durable(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as deliveries:
        iterator = iter(deliveries)
        numbers(iterator, 3)
        assert runtime.session is not None
        runtime.session.drain(UNIT, runtime.epochs[UNIT])
        assert runtime.of(Drained) == []
        assert list(iterator) == []
        assert [event.mark for event in runtime.of(Drained)] == [3]
        assert mark(backend) == 3


def test_a_unit_with_nothing_in_hand_is_drained_while_a_handler_runs_elsewhere(
    backend: FaultyBackend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    for number in range(20):
        topic.push(number, key=f"k{number}")
    with consume(topic, runtime) as deliveries:
        here = next(iter(deliveries))
        other = f"orders/0.{1 - here.partition}"
        assert runtime.session is not None
        runtime.session.drain(other, runtime.epochs[other])
        assert [event.unit for event in runtime.of(Drained)] == [other]


def test_a_refused_commit_loses_the_unit_for_good(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as deliveries:
        iterator = iter(deliveries)
        numbers(iterator, 3)
        raise_fence(backend.store, unit_fence("billing", UNIT))
        assert runtime.session is not None
        runtime.session.save()
        assert [event.unit for event in runtime.of(Lost)] == [UNIT]
        assert list(iterator) == []
    assert mark(backend) == 0
    assert runtime.of(Drained) == []


def test_nothing_is_handed_out_of_a_unit_that_somebody_else_has(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as deliveries:
        raise_fence(backend.store, unit_fence("billing", UNIT))
        assert list(deliveries) == []
    assert len(runtime.of(Lost)) == 1


def test_nothing_is_handed_out_beyond_the_lease(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="20ms") as deliveries:
        iterator = iter(deliveries)
        numbers(iterator, 2)
        runtime.until_s = float("-inf")
        assert runtime.session is not None
        runtime.session.wake()
        assert list(iterator) == []
        runtime.until_s = float("inf")
        assert numbers(iter(deliveries), 8) == list(range(2, 10))


def test_a_lease_that_ends_during_a_handler_stops_the_next_hand_out(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    runtime.until_s = time.monotonic() + 3600
    with consume(topic, runtime, idle_timeout="20ms") as deliveries:
        iterator = iter(deliveries)
        numbers(iterator, 1)
        runtime.until_s = time.monotonic()
        time.sleep(0.011)  # longer than a turn: the handler
        assert list(iterator) == []


def test_a_dropped_unit_is_not_committed(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime, ack="manual", idle_timeout="10ms") as deliveries:
        delivery = next(iter(deliveries))
        assert runtime.session is not None
        runtime.session.drop(UNIT, runtime.epochs.pop(UNIT))
        delivery.ack()
        with pytest.raises(Fenced):
            delivery.ack(wait=True)
        assert list(deliveries) == []
    assert mark(backend) == 0


def test_a_backend_that_fails_for_a_while_loses_no_acknowledgement(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    failures = iter(range(3))

    def fail(transaction: Transaction) -> None:
        if transaction.table and next(failures, None) is not None:
            raise BackendUnavailable("no lock")

    backend.before = fail
    with consume(topic, runtime) as deliveries:
        assert numbers(iter(deliveries), 10) == list(range(10))
        assert runtime.session is not None
        runtime.session.save()
    assert mark(backend) == 10


def test_a_store_that_cannot_be_written_is_said_once_for_all_units(
    backend: FaultyBackend, runtime: SingleOwner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tailrace.group")
    topic = Hub.from_backend(backend).create_topic("orders", partitions=4)
    push(topic, 40, keys=20)

    def fail(transaction: Transaction) -> None:
        if transaction.table:
            raise BackendUnavailable("the disk is full")

    with consume(topic, runtime) as deliveries:
        assert runtime.session is not None
        iterator = iter(deliveries)
        numbers(iterator, 30)
        backend.before = fail
        for _ in range(3):
            runtime.session.save()
            numbers(iterator, 2)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "the disk is full" in caplog.text
        backend.before = lambda _: None
        runtime.session.save()
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_signal_handler_may_shut_it_down_wherever_the_loop_is(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 2)
    deliveries = consume(topic, runtime)
    before = signal.signal(signal.SIGALRM, lambda *_: deliveries.shutdown())
    try:
        with deliveries:
            next(iter(deliveries))
            assert runtime.session is not None
            with runtime.session.share.lock:
                signal.raise_signal(signal.SIGALRM)
            assert list(deliveries) == []
        deliveries = consume(topic, SingleOwner(runtime.backend))
        with deliveries:
            next(iter(deliveries))
            signal.setitimer(signal.ITIMER_REAL, 0.02)  # while it waits for more
            assert list(deliveries) == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_waiting_acknowledgement_is_durable_when_it_returns(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        delivery = next(iter(deliveries))
        delivery.ack(wait=True)
        assert mark(backend) == 1


def test_an_idle_session_asks_the_backend_for_nothing_until_it_is_woken(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    got: list[int] = []
    deliveries = consume(topic, runtime)
    thread = in_thread(lambda: deliveries.run(lambda delivery: got.append(delivery.value)))
    eventually(lambda: runtime.awaited == {WHERE: 0})
    push(topic, 3)
    assert got == []
    runtime.tide()
    eventually(lambda: got == [0, 1, 2])
    eventually(lambda: runtime.awaited == {WHERE: 3})
    deliveries.shutdown()
    thread.join(10)
    assert not thread.is_alive()
    assert mark(backend) == 3


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
    eventually(lambda: runtime.awaited == {WHERE: 0})
    topic.scale(2)
    runtime.tide()
    eventually(lambda: [e for e in runtime.of(Progressed) if e.finished])
    assert runtime.awaited == {} or WHERE not in runtime.awaited
    deliveries.shutdown()
    thread.join(10)


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


def test_no_more_than_the_budget_is_handed_out_before_a_commit(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 50)
    settings = HubSettings.of(redelivery_records_max=8)
    with consume(topic, runtime, settings=settings) as deliveries:
        for delivery in deliveries:
            assert delivery.offset < mark(backend) + 8
            if delivery.offset == 49:
                break


def test_after_a_crash_the_budget_is_marked_as_redelivered(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 50)
    settings = HubSettings.of(redelivery_records_max=8)
    crashed = consume(topic, runtime, settings=settings).__enter__()
    numbers(iter(crashed), 12)
    with consume(topic, SingleOwner(backend), settings=settings, until="end") as deliveries:
        marks = {delivery.value: delivery.redelivered for delivery in deliveries}
    assert min(marks) == 8
    assert [value for value, marked in marks.items() if marked] == list(range(8, 16))


def test_a_crash_at_the_end_of_the_log_marks_nothing_that_comes_later(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 5)
    crashed = consume(topic, runtime, idle_timeout="10ms").__enter__()
    assert len(list(crashed)) == 5
    with consume(topic, SingleOwner(backend), limit=7) as deliveries:
        marks = []
        for delivery in deliveries:
            marks.append(delivery.redelivered)
            if len(marks) == 5:
                push(topic, 2)
                assert runtime.session is not None
                deliveries._session.wake()
    assert marks == [True] * 5 + [False] * 2


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


def test_a_deleted_topic_loses_the_unit(
    topic: Topic[Any], runtime: SingleOwner, backend: FaultyBackend
) -> None:
    push(topic, 3)
    with consume(topic, runtime, idle_timeout="10ms") as deliveries:
        assert len(list(deliveries)) == 3
        Hub.from_backend(backend).delete_topic("orders")
        runtime.session.wake()  # type: ignore[union-attr]
        assert list(deliveries) == []
    assert len(runtime.of(Lost)) == 1


def test_a_runtime_that_failed_ends_the_iteration_with_its_error(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    with consume(topic, runtime) as deliveries:
        assert runtime.session is not None
        runtime.session.fail(HubClosed("closed"))
        with pytest.raises(HubClosed):
            next(iter(deliveries))
    assert runtime.left


def test_leaving_gives_up_after_a_while_when_nobody_answers(
    topic: Topic[Any], runtime: SingleOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.group.session._LEAVE_S", 0.05)
    push(topic, 3)
    with consume(topic, runtime) as deliveries:
        numbers(iter(deliveries), 1)
        assert runtime.session is not None
        monkeypatch.setattr(runtime.session, "departed", lambda: None)
    assert [type(event) for event in runtime.told][-1] is Died
    assert runtime.left


def test_a_drain_of_what_it_does_not_have_is_answered_at_once(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    with consume(topic, runtime, units=[UNIT]):
        assert runtime.session is not None
        runtime.session.drain("orders/9.9", 4)
        assert ("orders/9.9", 4) in [(e.unit, e.epoch) for e in runtime.of(Drained)]


def test_a_unit_granted_again_goes_on_where_the_ledger_is(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        numbers(iter(deliveries), 4)
        assert runtime.session is not None
        runtime.session.save()
        runtime.grant(UNIT)
        delivery = next(iter(deliveries))
        assert delivery.value == 3
        assert delivery.redelivered
