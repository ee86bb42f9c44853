"""The batch reader of the Spark data source, driven as Spark drives it, without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull

import tailrace
from tailrace.spark.batch import BatchReader, FilteringReader, TaskReader
from tests.support.stream_driver import SCHEMA, numbers


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


@pytest.fixture
def orders(hub: tailrace.Hub) -> tailrace.Topic[bytes]:
    """Twenty records, one a second, of four keys in two partitions."""
    topic = hub.create_topic("orders", bytes, partitions=2)
    for n in range(20):
        topic.push(b"%d" % n, key=f"c{n % 4}", timestamp=1000 * n)
    return topic


def read(hub: tailrace.Hub, **options: object) -> list[dict[str, Any]]:
    """The rows of all tasks."""
    given = {"hub": hub.backend.name} | {name: str(value) for name, value in options.items()}
    if "assign" not in given:
        given["subscribe"] = "orders"
    reader = BatchReader(given, SCHEMA)
    return [
        row for task in reader.partitions() for batch in reader.read(task)
        for row in batch.to_pylist()
    ]  # fmt: skip


def test_a_read_may_end_at_a_time(hub: tailrace.Hub, orders: tailrace.Topic[bytes]) -> None:
    rows = read(hub, startingTimestamp=5000, endingTimestamp="1970-01-01T00:00:09Z")
    assert sorted(int(row["value"]) for row in rows) == [5, 6, 7, 8]


def test_a_read_may_end_at_a_time_of_each_partition(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    rows = read(hub, endingOffsetsByTimestamp=json.dumps({"orders": {"0.0": 4000}}))
    here = [int(row["value"]) for row in rows if row["partition"] == 0]
    assert here
    assert max(here) < 4
    assert max(int(row["value"]) for row in rows if row["partition"] == 1) >= 16


def test_only_assigned_partitions_are_read(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    orders.scale(4)
    orders.push_many(numbers(60))
    rows = read(hub, assign='{"orders": ["0.1", "1.2"]}')
    assert {(row["storage"], row["partition"]) for row in rows} == {(0, 1), (1, 2)}


def test_no_task_has_more_records_than_it_may(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    options = {"hub": hub.backend.name, "subscribe": "orders", "maxRecordsPerPartition": "3"}
    reader = BatchReader(options, SCHEMA)
    counts = [sum(b.num_rows for b in reader.read(task)) for task in reader.partitions()]
    assert max(counts) == 3
    assert sum(counts) == 20


def test_python_reads_the_tasks_of_the_native_reader_too(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    options = {"hub": hub.backend.name, "subscribe": "orders", "minPartitions": "5"}
    reader = BatchReader(options, SCHEMA, TaskReader.JAVA)
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert len(tasks) >= 5
    assert rows == read(hub, minPartitions=5)


def test_spark_checks_the_rows_that_the_native_reader_does_not(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    exact: list[Filter] = [EqualTo(("partition",), 1), IsNotNull(("topic",))]
    exact += [GreaterThan(("offset",), 3), EqualTo(("offset",), 5), In(("offset",), (5,))]
    by_rows: list[Filter] = [In(("offset",), (5, 7)), GreaterThan(("timestamp",), noon)]
    options = {"hub": hub.backend.name, "subscribe": "orders"}
    for by, rest in ((TaskReader.PYTHON, []), (TaskReader.JAVA, by_rows)):
        reader = FilteringReader(options, SCHEMA, by)
        assert list(reader.pushFilters([*exact, *by_rows])) == rest
