"""The progress that a session commits, and redelivery after a crash."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from tailrace.backend.contract import Transaction
from tailrace.errors import BackendUnavailable
from tailrace.group.protocol.events import Drained, Event
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.settings import HubSettings
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.faulty_backend import FaultyBackend
from tests.support.groups import mark
from tests.support.topics import push
from tests.support.waiting import in_thread
from tests.unit.group.session.one_unit import UNIT, WHERE, numbers


def test_acknowledgements_are_committed_when_the_progress_thread_saves(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as consumer:
        numbers(iter(consumer), 4)
        runtime.joined.save()
        assert mark(backend) == 3
        assert runtime.marks() == {UNIT: 3}


def test_a_unit_is_reported_as_drained_after_its_progress_is_durable(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    marks: list[int] = []

    def record_mark(event: Event) -> None:
        if isinstance(event, Drained):
            marks.append(mark(backend))

    runtime.on_post = record_mark
    push(topic, 10)
    with consume(topic, runtime) as consumer:
        numbers(iter(consumer), 10)
    assert marks == [10]


def test_a_backend_that_fails_for_a_while_loses_no_acknowledgement(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 10)
    failures = iter(range(3))

    def fail(transaction: Transaction) -> None:
        if transaction.table and next(failures, None) is not None:
            raise BackendUnavailable("no lock")

    backend.before = fail
    with consume(topic, runtime) as consumer:
        assert numbers(iter(consumer), 10) == list(range(10))
        runtime.joined.save()
    assert mark(backend) == 10


@pytest.mark.parametrize("error", [BackendUnavailable("no lock"), ZeroDivisionError()])
def test_progress_that_could_not_be_committed_is_committed_by_the_next_save(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend, error: Exception
) -> None:
    push(topic, 10)

    def fail(transaction: Transaction) -> None:
        raise error

    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        assert len(list(consumer)) == 10
        backend.before, works = fail, backend.before
        with suppress(ZeroDivisionError):
            runtime.joined.save()
        backend.before = works
        assert mark(backend) == 0
        runtime.joined.save()
        assert mark(backend) == 10


@pytest.mark.parametrize("partitions", [1, 20])
def test_progress_is_due_again_after_a_save_that_failed_for_one_unit(
    backend: FaultyBackend, runtime: FakeRuntime, partitions: int
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=partitions)
    push(topic, 400, keys=200)
    failures = iter(range(1))

    def fail(transaction: Transaction) -> None:
        if transaction.table and next(failures, None) is not None:
            raise BackendUnavailable("no lock")

    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        assert len(list(consumer)) == 400
        backend.before, due = fail, runtime.due
        runtime.joined.save()
        assert runtime.due == due + 1
        runtime.joined.save()
        assert runtime.due == due + 1
        ends = topic.storage_topics[0].ends
        assert [mark(backend, Partition("orders", 0, n)) for n in range(partitions)] == list(ends)


def test_an_acknowledgement_after_a_save_is_committed_by_the_next(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual", idle_timeout="10ms") as consumer:
        (delivery,) = consumer
        runtime.joined.save()
        delivery.ack()
        runtime.joined.save()
        assert mark(backend) == 1


def test_acknowledgements_after_a_save_are_due_and_committed_by_the_next_one(
    topic: Topic[Any],
    runtime: FakeRuntime,
    backend: FaultyBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.group.session.machine.TURN_S", 60.0)
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        iterator = iter(consumer)
        for done in (2, 5):
            numbers(iterator, 3)
            runtime.joined.save()
            assert mark(backend) == done
        due = runtime.due
        assert len(list(iterator)) == 4
        assert runtime.due > due
        runtime.joined.save()
        assert mark(backend) == 10


def test_the_second_of_two_concurrent_saves_returns_when_all_is_committed(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 10)
    happened: list[str] = []
    second: list[threading.Thread] = []

    def come_second() -> None:
        runtime.joined.commit()
        happened.append("known")

    def give_time(transaction: Transaction) -> None:
        second.append(in_thread(come_second))
        second[0].join(0.1)

    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        assert len(list(consumer)) == 10
        backend.before, backend.after = give_time, lambda _: happened.append("done")
        runtime.joined.save()
        second[0].join()
        backend.before = lambda _: None
    assert happened[:2] == ["done", "known"]


class Ending(ThreadPoolExecutor):
    """An executor that starts a single task, as when the interpreter exits meanwhile."""

    def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
        if self._work_queue.qsize() or self._threads:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        return super().submit(*arguments, **options)


def test_many_units_are_saved_also_when_no_thread_can_be_started(
    backend: FaultyBackend, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=20)
    push(topic, 400, keys=200)
    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        assert len(list(consumer)) == 400
        monkeypatch.setattr("tailrace.group.session.unit_io.ThreadPoolExecutor", Ending)
        assert runtime.joined.commit()
        ends = topic.storage_topics[0].ends
        assert [mark(backend, Partition("orders", 0, n)) for n in range(20)] == list(ends)


def test_a_store_that_cannot_be_written_is_logged_once_for_all_units(
    backend: FaultyBackend, runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tailrace.group")
    topic = Hub.from_backend(backend).create_topic("orders", partitions=4)
    push(topic, 40, keys=20)

    def outage() -> list[logging.LogRecord]:
        return [each for each in caplog.records if each.getMessage().startswith("consuming in")]

    def fail(transaction: Transaction) -> None:
        if transaction.table:
            raise BackendUnavailable("the disk is full")

    with consume(topic, runtime) as consumer:
        iterator = iter(consumer)
        numbers(iterator, 30)
        backend.before = fail
        for _ in range(3):
            runtime.joined.save()
            numbers(iterator, 2)
        assert [record.levelname for record in outage()] == ["WARNING"]
        assert "the disk is full" in caplog.text
        backend.before = lambda _: None
        runtime.joined.save()
        assert [record.levelname for record in outage()] == ["WARNING", "INFO"]


def test_a_waiting_acknowledgement_is_durable_when_it_returns(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as consumer:
        delivery = next(iter(consumer))
        delivery.ack(wait=True)
        assert mark(backend) == 1


def test_no_more_than_the_budget_is_delivered_before_a_commit(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 50)
    settings = HubSettings.of(redelivery_records_max=8)
    with consume(topic, runtime, settings=settings) as consumer:
        for delivery in consumer:
            assert delivery.offset < mark(backend) + 8
            if delivery.offset == 49:
                break


def test_after_a_crash_the_budget_is_marked_as_redelivered(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 50)
    settings = HubSettings.of(redelivery_records_max=8)
    crashed = consume(topic, runtime, settings=settings).__enter__()
    numbers(iter(crashed), 12)
    with consume(topic, FakeRuntime(backend), settings=settings, until="end") as consumer:
        marks = {delivery.value: delivery.redelivered for delivery in consumer}
    assert min(marks) == 8
    assert [value for value, marked in marks.items() if marked] == list(range(8, 16))


def test_a_crash_at_the_end_of_the_log_marks_nothing_that_comes_later(
    topic: Topic[Any], runtime: FakeRuntime, backend: FaultyBackend
) -> None:
    push(topic, 5)
    crashed = consume(topic, runtime, idle_timeout="10ms").__enter__()
    assert len(list(crashed)) == 5
    with consume(topic, FakeRuntime(backend), limit=7) as consumer:
        marks = []
        for delivery in consumer:
            marks.append(delivery.redelivered)
            if len(marks) == 5:
                push(topic, 2)
                consumer._session.wake([WHERE])
    assert marks == [True] * 5 + [False] * 2


def test_reading_over_a_gap_at_the_end_is_progress() -> None:
    backend = FaultyBackend(gap_every=5)
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 10)
    end = backend.log.bounds(WHERE).end
    assert end > 10
    with consume(topic, FakeRuntime(backend), limit=10) as consumer:
        assert len(list(consumer)) == 10
    runtime = FakeRuntime(backend)
    with consume(topic, runtime, idle_timeout="10ms") as consumer:
        assert list(consumer) == []
        runtime.joined.save()
        assert mark(backend) == end
