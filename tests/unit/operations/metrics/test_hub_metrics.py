"""What a process reports about a hub: its workers, consumers, producers, pipelines, and the hub."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import tailrace
from tailrace import Delivery, Reject, Retry, RetryLater
from tailrace.backend.contract import Transaction
from tailrace.clock import SystemClock
from tailrace.delivery.throttle import BURST
from tailrace.errors import BackendUnavailable
from tailrace.operations.metrics.hub_metrics import HubMetrics
from tailrace.operations.metrics.hub_readings import EVERY_S, SHARE_MAX
from tailrace.testing import ManualClock, MemoryBackend
from tests.support.faulty_backend import FaultyBackend
from tests.support.pipelines.lake import Lake
from tests.support.scraped import Scraped, get
from tests.support.waiting import until
from tests.support.workers import Calls, Office


@pytest.fixture
def office() -> Office:
    return Office()


def serve(office: Office) -> tailrace.MetricsServer:
    return tailrace.serve_metrics(office.hub, 0)


@pytest.fixture
def server(office: Office) -> Iterator[tailrace.MetricsServer]:
    with serve(office) as server:
        yield server


class Reading:
    """The metrics of a hub, with a clock that the test moves."""

    def __init__(self, office: Office) -> None:
        self.clock = ManualClock(SystemClock().now_ms())
        self._metrics = HubMetrics(office.hub, self.clock)

    def value(self, name: str, *labels: str) -> float | None:
        """Return the sum of the series whose labels begin with these."""
        found = [
            each.value
            for each in self._metrics.samples()
            if each.metric.name == f"tailrace_{name}" and each.labels[: len(labels)] == labels
            if isinstance(each.value, int | float)
        ]
        return sum(found) if found else None


# Workers.


def test_calls_are_counted_by_outcome_and_timed(
    office: Office, server: tailrace.MetricsServer
) -> None:
    calls = Calls()
    calls.fails(2, times=1)
    calls.fails(3, times=99, error=Reject("bad"))
    with office.subscription.start(calls):
        for value in range(5):
            office.topic.push(value, key=f"c{value}")
        calls.wait_done(4)
        until(lambda: Scraped(server.url).value("worker_dead_letters_total") == 1)
        found = Scraped(server.url)
    outcomes = ("succeeded", "failed", "rejected", "filtered")
    assert [found.value("worker_messages_total", outcome=each) for each in outcomes] == [4, 1, 1, 0]
    assert found.value("worker_call_seconds_count", subscription="mailer") == 6
    assert found.value("worker_commit_seconds_count") is not None
    assert found.value("worker_concurrency", subscription="mailer") == 16
    assert found.value("worker_shards", subscription="mailer") == 1
    assert found.value("worker_shards_granted_total", subscription="mailer") == 1
    assert found.value("worker_shards_lost_total", subscription="mailer") == 0
    assert found.value("group_leader", group="subscription:mailer") == 1


def test_messages_in_calls_are_in_flight_and_none_is_after_them(
    office: Office, server: tailrace.MetricsServer
) -> None:
    called, end = threading.Event(), threading.Event()

    def handle(delivery: Delivery[Any]) -> None:
        called.set()
        end.wait()

    with office.subscription.start(handle):
        office.topic.push(1, key="c1")
        assert called.wait(60)
        assert Scraped(server.url).value("worker_in_flight_messages") == 1
        end.set()
        until(lambda: Scraped(server.url).value("worker_in_flight_messages") == 0)


def test_calls_that_were_given_up_are_late_until_they_end(
    office: Office, server: tailrace.MetricsServer
) -> None:
    end = threading.Event()
    with office.subscription.start(lambda delivery: end.wait(), timeout="10ms"):
        office.topic.push(1, key="c1")
        until(lambda: Scraped(server.url).value("worker_late_calls") == 1)
        assert Scraped(server.url).value("worker_call_seconds_count") == 1
        end.set()
        until(lambda: Scraped(server.url).value("worker_late_calls") == 0)


def test_messages_that_do_not_pass_a_filter_stay_counted_when_their_shard_moves(
    office: Office, server: tailrace.MetricsServer
) -> None:
    calls = Calls()
    with office.subscription.start(calls, filter=lambda message: message.value > 2):
        for value in range(5):
            office.topic.push(value, key=f"c{value}")
        calls.wait_done(2)
        until(lambda: Scraped(server.url).value("worker_messages_total", outcome="filtered") == 3)
    found = Scraped(server.url)
    assert found.value("worker_messages_total", outcome="filtered") == 3
    assert found.value("worker_shards") is None, "a gauge ends with its worker"


def test_commits_that_store_nothing_are_counted() -> None:
    backend = FaultyBackend()
    office, calls = Office(backend=backend), Calls()

    def refuse(transaction: Transaction) -> None:
        if not transaction.appends:
            raise BackendUnavailable("the disk does not answer")

    with serve(office) as server, office.subscription.start(calls):
        until(lambda: Scraped(server.url).value("worker_shards") == 1)
        backend.before = refuse
        office.topic.push(1, key="c1")
        until(lambda: (Scraped(server.url).value("worker_commit_failures_total") or 0) > 0)
        backend.before = lambda transaction: None
        calls.wait_done(1)


# Subscriptions, as they are stored.


def test_the_backlog_of_a_subscription_is_read_of_the_hub(office: Office) -> None:
    calls, reading = Calls(), Reading(office)
    calls.fails(1, times=99)
    calls.fails(9, times=99, error=Reject("bad"))
    office.subscription.update(retry=Retry(attempts=3, first="1h", max="1h"))
    with office.subscription.start(calls):
        for value in (1, 9):
            office.topic.push(value, key=f"c{value}")
        office.topic.push(2, key="c1")
        until(lambda: office.subscription.describe().backlog.rq == 2)
        until(lambda: office.subscription.describe().backlog.dlq == 1)
        queues = [
            reading.value("subscription_backlog_messages", "mailer", each)
            for each in ("mq", "rq", "dlq")
        ]
        assert queues == [0, 2, 1]
        assert reading.value("subscription_shards", "mailer") == 1
        assert reading.value("subscription_unowned_shards", "mailer") == 0
        assert reading.value("subscription_paused", "mailer") == 0
        office.subscription.pause("maintenance")
        reading.clock.advance(60)
        assert reading.value("subscription_paused", "mailer") == 1
        age = reading.value("subscription_oldest_seconds", "mailer")
        assert age is not None
        assert 59 <= age <= 120


def test_a_subscription_is_throttled_soon_after_messages_were_held_back(office: Office) -> None:
    reading = Reading(office)

    def fail(delivery: Delivery[Any]) -> None:
        raise RetryLater("1h")

    with office.subscription.start(fail):
        assert reading.value("subscription_throttled", "mailer") == 0
        office.topic.push_many([(f"c{number}", number) for number in range(BURST + 100)])
        until(lambda: office.subscription.describe().held_back is not None)
        assert Reading(office).value("subscription_throttled", "mailer") == 1
        reading.clock.advance(600)
        assert reading.value("subscription_throttled", "mailer") == 0


def test_nothing_is_read_of_subscriptions_and_groups_that_the_process_does_not_work_for(
    office: Office,
) -> None:
    assert Reading(office).value("subscription_backlog_messages") is None


def test_the_hub_is_read_again_only_after_some_seconds(office: Office) -> None:
    reading = Reading(office)
    with office.subscription.start(Calls()):
        assert reading.value("subscription_paused", "mailer") == 0
        office.subscription.pause("maintenance")
        reading.clock.advance(EVERY_S - 1)
        assert reading.value("subscription_paused", "mailer") == 0
        assert reading.value("hub_reading_age_seconds") == EVERY_S - 1
        assert reading.value("worker_concurrency", "mailer") == 16
        reading.clock.advance(1)
        assert reading.value("subscription_paused", "mailer") == 1
        assert reading.value("hub_reading_age_seconds") == 0


class WatchedStore:
    """A store that calls a function before each read."""

    def __init__(self, store: Any, before: Callable[[], None]) -> None:
        self._store = store
        self.before = before

    def __getattr__(self, name: str) -> Any:
        self.before()
        return getattr(self._store, name)


def test_a_slow_hub_is_read_less_often(office: Office) -> None:
    clock = ManualClock()
    metrics = HubMetrics(office.hub, clock)

    def age() -> object:
        found = {each.metric.name: each.value for each in metrics.samples()}
        return found["tailrace_hub_reading_age_seconds"]

    with office.subscription.start(Calls()):
        backend = cast("MemoryBackend", office.hub.backend)
        store = backend.store
        here = threading.current_thread()
        slow = WatchedStore(
            store, lambda: clock.advance(1) if threading.current_thread() is here else None
        )
        backend.store = cast("Any", slow)
        began = clock.monotonic()
        assert age() == 0
        taken = clock.monotonic() - began
        backend.store = store
        assert taken > EVERY_S / SHARE_MAX
        clock.advance(SHARE_MAX * taken - 1)
        assert age() == SHARE_MAX * taken - 1
        clock.advance(1)
        assert age() == 0


def test_a_hub_that_cannot_be_read_hides_no_other_metric(office: Office) -> None:
    metrics = HubMetrics(office.hub)

    def values() -> dict[str, object]:
        return {each.metric.name: each.value for each in metrics.samples()}

    with office.subscription.start(Calls()):
        until(lambda: values()["tailrace_worker_shards"] == 1)
        here, backend = threading.current_thread(), cast("MemoryBackend", office.hub.backend)

        def fail() -> None:
            if threading.current_thread() is here:
                raise BackendUnavailable("the disk does not answer")

        store = backend.store
        backend.store = cast("Any", WatchedStore(store, fail))
        failing = HubMetrics(office.hub)
        found = {each.metric.name: each.value for each in failing.samples()}
        assert found["tailrace_hub_reading_failures_total"] == 1
        assert found["tailrace_worker_shards"] == 1
        assert "tailrace_subscription_paused" not in found
        assert failing.unready() == "hub: BackendUnavailable"
        backend.store = store


# Health.


def test_a_worker_is_ready_once_it_has_joined_and_until_it_stops(
    office: Office, server: tailrace.MetricsServer
) -> None:
    worker = office.subscription.start(Calls())
    until(lambda: get(server.url, "/readyz") == (200, "ready\n"))
    worker.stop()
    assert get(server.url, "/readyz") == (503, "the worker of mailer ends\n")
    worker.close()


def test_a_consumer_is_ready_once_it_has_joined(
    office: Office, server: tailrace.MetricsServer
) -> None:
    with office.topic.tail(group="billing") as consumer:
        until(lambda: get(server.url, "/readyz") == (200, "ready\n"))
        consumer.shutdown()
        assert get(server.url, "/readyz") == (503, "the consumer of group billing ends\n")


# Groups.


def test_consumers_report_their_deliveries_and_the_lag_of_their_group(office: Office) -> None:
    reading = Reading(office)
    office.topic.push_many([("c1", number) for number in range(5)])
    with office.topic.tail(group="billing", ack="manual") as consumer:
        deliveries = iter(consumer)
        next(deliveries).ack()
        next(deliveries).nack(delay="0s")
        again = next(deliveries)
        names = ("delivered", "redelivered", "acknowledged", "nacked")
        counts = [reading.value(f"consumer_{each}_messages_total", "billing") for each in names]
        assert counts == [3, 1, 1, 1]
        assert reading.value("consumer_in_flight_messages", "billing") == 1
        assert reading.value("consumer_partitions", "billing") == 1
        assert reading.value("consumer_partitions_granted_total", "billing") == 1
        assert reading.value("consumer_partitions_revoked_total", "billing") == 0
        assert reading.value("group_leader", "billing") == 1
        assert reading.value("group_consumers", "billing") == 1
        assert reading.value("group_partitions", "billing", "open") == 1
        assert reading.value("group_lag_messages", "billing") == 5
        again.ack()
    assert reading.value("consumer_acknowledged_messages_total", "billing") == 2


def test_a_rebalance_is_counted_where_partitions_come_and_go(office: Office) -> None:
    orders: Any = office.hub.create_topic("twice", partitions=2)
    reading = Reading(office)
    with orders.tail(group="billing", idle_timeout="10ms") as first:
        assert not list(first)
        assert reading.value("consumer_partitions_granted_total", "billing") == 2
        with orders.tail(group="billing", idle_timeout="10ms") as second:
            until(lambda: not list(first) and not list(second) and len(second.stats().partitions))
            assert reading.value("consumer_partitions_granted_total", "billing") == 3
            assert reading.value("consumer_partitions_revoked_total", "billing") == 1
            assert reading.value("consumer_partitions", "billing") == 2


# Pushes.


def test_pushes_are_counted_by_topic(office: Office, server: tailrace.MetricsServer) -> None:
    topic: tailrace.Topic[Any] = office.topic
    topic.push(b"12345", key=b"12")
    topic.push(b"x", dedup_id="1")
    topic.push(b"x", dedup_id="1")
    topic.push_many([(b"k", b"1"), (b"k", b"2")])
    with topic.producer() as producer:
        producer.push(b"3")
    with topic.producer(name="shop") as producer:
        producer.push(b"4")
    with office.hub.transaction() as transaction:
        transaction.push("orders", b"5")
    found = Scraped(server.url)
    assert found.value("pushed_messages_total", topic="orders") == 7
    assert found.value("push_seconds_count", topic="orders") == 6
    assert found.value("push_failures_total", topic="orders") == 0
    size_bytes = found.value("pushed_bytes_total", topic="orders")
    assert size_bytes is not None
    assert size_bytes >= 7 * 29 + 15


def test_pushes_that_raise_are_counted() -> None:
    def refuse(transaction: Transaction) -> None:
        raise BackendUnavailable("the disk does not answer")

    backend = FaultyBackend()
    office = Office(backend=backend)
    with serve(office) as server:
        backend.before = refuse
        with pytest.raises(BackendUnavailable):
            office.topic.push(1)
        with pytest.raises(BackendUnavailable), office.hub.transaction() as transaction:
            transaction.push("orders", 5)
        found = Scraped(server.url)
    assert found.value("push_failures_total", topic="orders") == 2
    assert found.value("pushed_messages_total", topic="orders") == 0


def test_messages_that_a_producer_holds_are_queued(
    office: Office, server: tailrace.MetricsServer
) -> None:
    with office.topic.producer(linger="1m") as producer:
        for number in range(3):
            producer.push(number)
        assert Scraped(server.url).value("producer_queued_messages", topic="orders") == 3
        producer.flush()
        assert Scraped(server.url).value("producer_queued_messages", topic="orders") == 0


# Pipelines.


def test_a_pipeline_reports_its_reader_and_its_writers(lake: Lake) -> None:
    seen: dict[str, Scraped] = {}
    with tailrace.serve_metrics(lake.hub, 0) as server:
        pipeline = lake.pipeline()

        def progress(now: tailrace.RunProgress) -> None:
            if now.writers and now.writers[0].rows == 16 and not now.writers[0].lag:
                seen.setdefault("first", Scraped(server.url))
                pipeline.stop()

        pipeline.run(lake.hub, progress=progress)
        after = Scraped(server.url)
    found = seen["first"]
    assert found.value("pipeline_running", pipeline="lake") == 1
    assert found.value("pipeline_rows_read_total", pipeline="lake") == 16
    assert (found.value("pipeline_read_bytes_total", pipeline="lake") or 0) > 0
    assert found.value("pipeline_unreadable_rows_total", pipeline="lake") == 0
    assert found.value("pipeline_reader_blocked", pipeline="lake") == 0
    assert found.value("writer_rows_total", writer="lake/crm") == 16
    assert found.value("writer_parked_records_total", writer="lake/crm") == 0
    assert found.value("writer_lag_records", writer="lake/crm") == 0
    assert found.value("writer_waiting_seconds", writer="lake/crm") == 0
    states = ("running", "resuming", "waiting", "failed", "stopped")
    values = [found.value("writer_state", writer="lake/crm", state=each) for each in states]
    assert values == [1, 0, 0, 0, 0]
    assert after.value("pipeline_running") is None
    assert after.value("writer_rows_total", writer="lake/crm") == 16


# The hub.


def test_the_disk_of_a_hub_in_a_directory_is_reported(tmp_path: Path) -> None:
    with (
        tailrace.open(tmp_path / "hub", sync="none") as hub,
        tailrace.serve_metrics(hub, 0) as server,
    ):
        found = Scraped(server.url)
    assert (found.value("hub_database_bytes") or 0) > 0
    assert found.value("hub_wal_bytes") is not None
    assert (found.value("hub_disk_free_bytes") or 0) > 0
    assert 0 <= (found.value("hub_disk_used_ratio") or 0) <= 1
