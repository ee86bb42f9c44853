"""The bound on the records that all units of a session read ahead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.delivery.delivery import Delivery
from tailrace.group.consumer.consumer import Consumer
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.settings import HubSettings
from tests.support.backends import open_backend
from tests.support.fake_runtime import FakeRuntime, consume

UNITS = 100
RECORDS = 10
BATCH_BYTES = 1 << 20
PREFETCH_BYTES = 8 << 20


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    opened = open_backend("embedded-none", tmp_path / "hub")
    yield opened
    opened.close()


def one_batch_each(topic: Topic[Any], units: int, records: int, value: Any) -> None:
    """Give each partition one stored batch of one key, which is read as a whole."""
    keys: dict[int, str] = {}
    number = 0
    while len(keys) < units:
        keys[topic.route(f"k{number}")] = f"k{number}"
        number += 1
    for key in keys.values():
        topic.push_many([(key, value)] * records)


def ahead(consumer: Consumer[Any]) -> int:
    """Return the bytes that all units have read and not delivered."""
    session = consumer._session
    with session.state.lock:
        return sum(cursor.ahead_bytes for cursor in session.machine.scheduler.cursors.values())


def test_many_units_with_large_batches_stay_within_the_bound_and_all_have_their_turn(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", bytes, partitions=UNITS)
    one_batch_each(topic, UNITS, RECORDS, bytes(BATCH_BYTES // RECORDS))
    settings = HubSettings.of(prefetch_bytes=PREFETCH_BYTES)
    most, left = 0, dict.fromkeys(range(UNITS), RECORDS)
    with consume(topic, runtime, settings=settings, limit=UNITS * RECORDS) as consumer:
        for delivery in consumer:
            most = max(most, ahead(consumer))
            left[delivery.partition] -= 1
            consumer._session.interrupt()  # a turn is over after each message
    assert set(left.values()) == {0}
    assert PREFETCH_BYTES / 2 < most < PREFETCH_BYTES + 1.1 * BATCH_BYTES


def test_no_read_exceeds_the_prefetch_bound(
    backend: Backend, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=4)
    one_batch_each(topic, 4, RECORDS, "a")
    asked: list[int] = []
    read = backend.log.read

    def reading(where: Partition, start: int, bytes_max: int, end: int | None = None) -> Any:
        asked.append(bytes_max)
        return read(where, start, bytes_max, end)

    monkeypatch.setattr(backend.log, "read", reading)
    settings = HubSettings.of(prefetch_bytes="4KiB")
    with consume(topic, runtime, settings=settings, until="end") as consumer:
        assert len(list(consumer)) == 4 * RECORDS
    assert 0 < max(asked) <= 4096


def test_units_that_read_at_the_same_time_share_the_prefetch_bound(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=4)
    with consume(topic, runtime, settings=HubSettings.of(prefetch_bytes="1MiB")) as consumer:
        assert consumer._session.machine.read_bytes == 256 << 10


def test_stalled_units_do_not_keep_others_from_reading(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=4)
    one_batch_each(topic, 4, RECORDS, "a")
    settings = HubSettings.of(prefetch_bytes=1, redelivery_records_max=2)
    with consume(topic, runtime, settings=settings, ack="manual", idle_timeout="10ms") as consumer:
        in_flight = list(consumer)
        assert {delivery.partition for delivery in in_flight} == {0, 1, 2, 3}
        assert ahead(consumer) > 0
        for delivery in in_flight:
            delivery.ack()
        assert len(list(consumer)) == 4


def test_a_unit_that_has_records_does_not_wait_for_others_that_read_again_and_again(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", bytes, partitions=2)
    stocked, hungry = (one_key_of(topic, number) for number in range(2))
    topic.push_many([(stocked, bytes(2000))] * 3)
    for _ in range(20):
        topic.push(bytes(9000), key=hungry)  # one of them is a read
    settings = HubSettings.of(prefetch_bytes=10_000)
    seen: list[int] = []
    with consume(topic, runtime, settings=settings, limit=23) as consumer:
        for delivery in consumer:
            seen.append(delivery.partition)
            consumer._session.interrupt()  # a turn is over after each message
    assert seen.count(0) == 3
    assert seen[:8].count(0) == 3


def one_key_of(topic: Topic[Any], partition: int) -> str:
    return next(key for key in map(str, range(1000)) if topic.route(key) == partition)


@pytest.mark.parametrize("ack", ["auto", "manual"])
def test_delivered_messages_are_not_kept_in_memory(
    backend: Backend, runtime: FakeRuntime, ack: str
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=4)
    one_batch_each(topic, 4, RECORDS, "a")
    with consume(topic, runtime, ack=ack, idle_timeout="10ms") as consumer:
        before: Delivery[Any] | None = None
        for delivery in consumer:
            if ack == "manual":
                before, late = delivery, before
                if late is not None:
                    late.ack()
        if before is not None:
            before.ack()
        assert list(consumer) == []
        assert consumer.stats().acknowledged == 4 * RECORDS
        cursors = consumer._session.cursors.values()
        assert [len(cursor.batch) for cursor in cursors] == [0] * 4
