"""The stream reader of the Spark data source, driven as Spark drives it, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

import tailrace
from tailrace.spark.stream import StreamReader
from tests.support.stream_driver import SCHEMA, Driver, numbers, rows, values


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


@pytest.fixture
def orders(hub: tailrace.Hub) -> tailrace.Topic[bytes]:
    return hub.create_topic("orders", bytes, partitions=2)


def test_an_idle_topic_returns_the_same_offset_again(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(10))
    driver = Driver(hub)
    assert len(driver.drain()) == 10
    before = driver.offset
    assert driver.reader.latestOffset(before, ReadAllAvailable()) is before
    assert driver.reader.partitions(before, before) == []


def test_a_new_storage_topic_without_records_does_not_change_the_offset(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    driver = Driver(hub)
    orders.scale(4)
    assert driver.trigger() is None


def test_latest_starts_after_the_existing_records(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(10))
    orders.scale(4)
    orders.push_many(numbers(10, first=10))
    driver = Driver(hub, startingOffsets="latest")
    orders.push_many(numbers(3, first=20))
    orders.scale(2)
    orders.push_many(numbers(3, first=23))
    assert sorted(map(int, values(driver.drain()))) == list(range(20, 26))


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_no_batch_exceeds_its_limit_and_all_records_are_read(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], limit: int
) -> None:
    orders.push_many(numbers(60))
    batches = list(Driver(hub, maxOffsetsPerTrigger=limit).batches())
    assert all(len(batch) <= limit for batch in batches)
    assert len(batches) == -(-60 // limit)
    assert sorted(int(value) for batch in batches for value in values(batch)) == list(range(60))


def test_no_batch_exceeds_its_limit_in_bytes_by_much_and_all_records_are_read(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    for _ in range(10):
        orders.push_many([(f"c{n}", bytes(1000)) for n in range(20)])
    batches = list(Driver(hub, maxBytesPerTrigger="10KiB").batches())
    assert all(5 <= len(batch) <= 10 for batch in batches[:-4])
    assert sum(map(len, batches)) == 200


def test_a_record_over_the_limit_comes_alone(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many([("c1", bytes(1000))] * 5)
    batches = list(Driver(hub, maxBytesPerTrigger="10B").batches())
    assert [len(batch) for batch in batches] == [1] * 5


def test_with_both_limits_both_hold(hub: tailrace.Hub, orders: tailrace.Topic[bytes]) -> None:
    orders.push_many([("c1", bytes(1000))] * 8 + [("c1", b"")] * 8)
    sizes = [
        len(batch)
        for batch in Driver(hub, maxBytesPerTrigger="3KiB", maxOffsetsPerTrigger=4).batches()
    ]
    assert max(sizes) <= 4
    assert sum(sizes) == 16


def test_a_trigger_without_a_limit_reads_all(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(60))
    driver = Driver(hub, maxOffsetsPerTrigger=1)
    end = driver.reader.latestOffset(driver.offset, ReadAllAvailable())
    assert end == driver.reader.reportLatestOffset()


def test_limits_are_reported_to_spark(hub: tailrace.Hub, orders: tailrace.Topic[bytes]) -> None:
    assert Driver(hub, maxOffsetsPerTrigger=5).reader.getDefaultReadLimit() == ReadMaxRows(5)
    assert Driver(hub, maxBytesPerTrigger=9).reader.getDefaultReadLimit() == ReadMaxBytes(9)
    assert Driver(hub, minOffsetsPerTrigger=3).reader.getDefaultReadLimit() == ReadMinRows(3)
    assert Driver(hub).reader.getDefaultReadLimit() == ReadAllAvailable()


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": 7}, {"minPartitions": 5}])
def test_a_stream_starts_only_after_the_streams_it_follows(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], options: dict[str, object]
) -> None:
    pushed = 0
    for partitions in (4, 12, 3, 2):
        orders.push_many(numbers(50, first=pushed))
        orders.scale(partitions)
        pushed += 50
    orders.push_many(numbers(50, first=pushed))
    newest: dict[bytes, int] = {}
    count = 0
    for batch in Driver(hub, **options).batches():
        in_batch = {row["key"]: row["storage"] for row in batch}
        assert all(in_batch[row["key"]] == row["storage"] for row in batch)
        for row in sorted(batch, key=lambda row: (row["partition"], row["offset"])):
            assert newest.get(row["key"], -1) < int(row["value"])
            newest[row["key"]] = int(row["value"])
            count += 1
    assert count == pushed + 50


def test_available_now_reads_all_and_only_the_records_present_at_its_start(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(20))
    orders.scale(4)
    orders.push_many(numbers(20, first=20))
    driver = Driver(hub, maxOffsetsPerTrigger=3)
    driver.reader.prepareForTriggerAvailableNow()
    seen = []
    for batch in driver.batches():
        seen += [int(value) for value in values(batch)]
        orders.push_many(numbers(2, first=1000))
        if len(seen) == 3:
            orders.scale(12)
    assert sorted(seen) == list(range(40))
    driver.reader = Driver(hub).reader
    assert all(int(value) >= 1000 for value in values(driver.drain()))


def test_new_topics_that_match_are_read_from_their_first_record(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    driver = Driver(hub, subscribePattern="or.*|shop", startingOffsets="latest")
    hub.create_topic("shop", bytes, partitions=1).push(b"1")
    hub.create_topic("shopping", bytes, partitions=1).push(b"2")
    orders.push(b"3")
    assert sorted(values(driver.drain())) == [b"1", b"3"]


def test_the_same_offsets_give_the_same_rows_after_a_restart(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(30))
    driver = Driver(hub, maxOffsetsPerTrigger=10)
    start = driver.offset
    first = driver.trigger()
    again = Driver(hub).reader
    tasks = again.partitions(start, driver.offset)
    assert [[row for batch in again.read(task) for row in rows(batch)] for task in tasks] == first


def test_streams_are_split_into_the_requested_number_of_tasks(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    for first in range(0, 1000, 100):
        orders.push_many(numbers(100, first=first))
    tasks = Driver(hub, minPartitions=7).trigger()
    assert tasks is not None
    assert 7 <= len(tasks) <= 9
    assert sorted(int(row["value"]) for task in tasks for row in task) == list(range(1000))
    assert max(map(len, tasks)) <= 2 * min(map(len, tasks))


def test_a_missing_offset_is_a_loss(hub: tailrace.Hub, orders: tailrace.Topic[bytes]) -> None:
    orders.push_many(numbers(10))
    driver = Driver(hub)
    driver.offset["orders"]["0.0"] = 99
    with pytest.raises(
        tailrace.Error, match=r"orders/0\.0@99 does not exist.*failOnDataLoss=false"
    ):
        driver.trigger()
    driver.reader = Driver(hub, failOnDataLoss="false").reader
    driver.drain()
    orders.push_many([("c1", b"new"), ("c2", b"new"), ("c3", b"new"), ("c4", b"new")])
    assert values(driver.drain()) == [b"new"] * 4


def test_a_topic_that_was_deleted_is_a_loss(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    other = hub.create_topic("other", bytes)
    orders.push_many(numbers(10))
    driver = Driver(hub, subscribe="orders,other")
    driver.drain()
    hub.delete_topic("orders")
    other.push(b"still here")
    with pytest.raises(tailrace.Error, match="topic 'orders' was deleted since it was last read"):
        driver.trigger()
    driver.reader = StreamReader(
        {"hub": hub.backend.name, "subscribe": "orders,other", "failOnDataLoss": "false"}, SCHEMA
    )
    assert values(driver.drain()) == [b"still here"]


def test_a_topic_created_again_under_its_name_is_another_topic(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(10))
    driver = Driver(hub)
    driver.drain()
    hub.delete_topic("orders")
    hub.create_topic("orders", bytes, partitions=2).push_many(numbers(30, first=100))
    with pytest.raises(tailrace.Error, match="'orders' was deleted and created again"):
        driver.trigger()
    driver.reader = Driver(hub, failOnDataLoss="false").reader
    assert len(driver.drain()) == 30


def test_a_topic_no_longer_subscribed_to_keeps_its_offset(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    other = hub.create_topic("other", bytes, partitions=1)
    both = Driver(hub, subscribe="orders,other")
    one = Driver(hub)
    one.offset = both.offset
    other.push(b"1")
    orders.push(b"2")
    assert values(one.drain()) == [b"2"]
    both.offset = one.offset
    assert values(both.drain()) == [b"1"]


def test_a_gap_costs_no_batches(hub: tailrace.Hub, tmp_path: Path) -> None:
    """A machine crash makes offsets go on at the next multiple of 2^32."""
    orders = hub.create_topic("orders", bytes, partitions=1)
    orders.push_many([(None, b"1")] * 5)
    hub.close()
    from tailrace.backend.embedded import EmbeddedBackend

    backend = EmbeddedBackend.open(tmp_path / "hub", boot="another boot")
    crashed = tailrace.Hub.from_backend(backend)
    crashed.topic("orders", bytes).push_many([(None, b"2")] * 5)
    assert crashed.topic("orders").storage_topics[0].ends[0] > 2**32
    crashed.close()
    with tailrace.open(tmp_path / "hub") as opened:
        batches = [values(batch) for batch in Driver(opened, maxOffsetsPerTrigger=4).batches()]
        tasks = Driver(opened, maxRecordsPerPartition=4).trigger() or []
    assert len(batches) <= 5
    assert [value for batch in batches for value in batch] == [b"1"] * 5 + [b"2"] * 5
    assert [len(task) for task in tasks] == [4, 4, 2]


def test_reading_needs_only_the_files(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], tmp_path: Path
) -> None:
    orders.push_many(numbers(30))
    driver = Driver(hub)
    end = driver.reader.latestOffset(driver.offset, ReadAllAvailable())
    tasks = pickle.loads(pickle.dumps(driver.reader.partitions(driver.offset, end)))
    hub.close()
    for file in (tmp_path / "hub").glob("hub.*"):
        if file.is_file():
            file.unlink()
    found = [row for task in tasks for batch in driver.reader.read(task) for row in rows(batch)]
    assert len(found) == 30


def test_a_storage_topic_that_was_read_and_deleted_is_no_data_loss(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(10))
    driver = Driver(hub)
    assert len(driver.drain()) == 10
    orders.scale(4)
    orders.push_many(numbers(10, first=10))
    orders.trim(1, force=True)
    assert sorted(map(int, values(driver.drain()))) == list(range(10, 20))


def test_a_storage_topic_that_was_deleted_unread_is_a_data_loss(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(10))
    driver = Driver(hub, maxOffsetsPerTrigger=3)
    assert driver.trigger() is not None
    orders.scale(4)
    orders.push_many(numbers(10, first=10))
    orders.trim(1, force=True)
    with pytest.raises(tailrace.Error, match="was deleted, and read up to offset"):
        driver.drain()
    lenient = Driver(hub, failOnDataLoss="false")
    lenient.offset = driver.offset
    assert sorted(map(int, values(lenient.drain()))) == list(range(10, 20))


def test_a_query_of_a_topic_that_was_trimmed_starts_with_what_is_left(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.push_many(numbers(10))
    orders.scale(4)
    orders.push_many(numbers(10, first=10))
    orders.trim(1, force=True)
    assert sorted(map(int, values(Driver(hub).drain()))) == list(range(10, 20))
