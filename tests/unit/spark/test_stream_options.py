"""Options of a stream that Spark reads: how much, from when, and of which partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.testing.clock import ManualClock
from tests.support.stream_driver import Driver, numbers


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


@pytest.fixture
def orders(hub: tailrace.Hub) -> tailrace.Topic[bytes]:
    return hub.create_topic("orders", bytes, partitions=2)


def test_a_trigger_waits_for_its_least_number_of_records_but_not_for_ever(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    clock = ManualClock()
    driver = Driver(hub, minOffsetsPerTrigger=10, maxTriggerDelay="30s")
    driver.restart(clock)
    orders.push_many(numbers(1))
    assert len(driver.trigger() or []) == 1, "the first trigger does not wait"
    orders.push_many(numbers(9))
    clock.advance(29)
    assert driver.trigger() is None
    orders.push_many(numbers(1))
    assert sum(map(len, driver.trigger() or [])) == 10
    orders.push_many(numbers(1))
    assert driver.trigger() is None
    clock.advance(30)
    assert sum(map(len, driver.trigger() or [])) == 1


def test_available_now_does_not_wait_for_more_records(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    driver = Driver(hub, minOffsetsPerTrigger=10)
    orders.push_many(numbers(25))
    driver.trigger()
    orders.push_many(numbers(3))
    driver.reader.prepareForTriggerAvailableNow()
    assert len(driver.drain()) == 3


def test_only_assigned_partitions_are_read(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(60))
    orders.scale(4)
    orders.push_many(numbers(60))
    driver = Driver(hub, assign='{"orders": ["0.1", "1.2"]}')
    assert {(row["storage"], row["partition"]) for row in driver.drain()} == {(0, 1), (1, 2)}
    orders.scale(2)
    orders.push_many(numbers(60))
    assert driver.drain() == []


def test_an_assigned_partition_must_exist(hub: tailrace.Hub, orders: tailrace.Topic[bytes]) -> None:
    with pytest.raises(tailrace.InvalidValue, match="valid: 0 to 1"):
        Driver(hub, assign='{"orders": ["0.2"]}')


def test_a_query_may_start_at_a_time_of_each_partition(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    for n in range(20):
        orders.push(b"%d" % n, key=f"c{n % 4}", timestamp=1000 * n)
    times = {"orders": {"0.0": 10_000, "0.1": "1970-01-01T00:00:15Z"}}
    driver = Driver(hub, startingOffsetsByTimestamp=json.dumps(times))
    oldest: dict[int, int] = {}
    for row in driver.drain():
        oldest[row["partition"]] = min(oldest.get(row["partition"], 99), int(row["value"]))
    assert 10 <= oldest[0] < 14
    assert 15 <= oldest[1] < 19


def test_no_task_has_more_records_than_it_may(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    for first in range(0, 1000, 100):
        orders.push_many(numbers(100, first=first))
    tasks = Driver(hub, maxRecordsPerPartition=90).trigger()
    assert tasks is not None
    assert len(tasks) <= 13
    assert max(map(len, tasks)) == 90
    assert sorted(int(row["value"]) for task in tasks for row in task) == list(range(1000))
