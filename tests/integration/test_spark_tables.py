"""Topics as DataFrames, views and tables of Spark that later queries read again, and filters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tailrace
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.message import Partition
from tests.integration.topics_on_spark import numbers, read
from tests.support.spark_errors import tailrace_message

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.part("pipelines"),
    pytest.mark.usefixtures("reader"),
]

NEW_YEAR_MS = 1_767_225_600_000


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


@pytest.fixture
def orders(hub: tailrace.Hub) -> tailrace.Topic[bytes]:
    topic = hub.create_topic("orders", bytes, partitions=4)
    topic.push_many(numbers(100))
    return topic


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """The name of a table that is dropped afterwards."""
    yield "topic_table"
    spark.sql("DROP TABLE IF EXISTS topic_table")


def tasks(frame: DataFrame) -> int:
    return frame.rdd.getNumPartitions()


def test_each_query_of_a_dataframe_reads_what_is_there_when_it_starts(
    spark: SparkSession, hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    frame = read(spark, hub, "orders")
    frame.createOrReplaceTempView("orders_again")
    assert frame.count() == 100
    orders.push_many(numbers(50))
    assert frame.count() == 150
    assert spark.sql("SELECT count(*) AS n FROM orders_again").first() == (150,)
    orders.scale(8)
    orders.push_many(numbers(50))
    assert frame.count() == 200
    assert (
        frame.where("key = 'c3'").count() == spark.table("orders_again").where("key = 'c3'").count()
    )


def test_a_dataframe_is_read_again_after_a_compaction(spark: SparkSession, tmp_path: Path) -> None:
    backend = EmbeddedBackend.open(tmp_path / "hub", sync="none", segment_bytes=2000)
    with tailrace.Hub.from_backend(backend) as hub:
        orders = hub.create_topic("orders", bytes, partitions=1)
        for n in range(40):
            orders.push(bytes(200), key=f"c{n % 5}")
        frame = read(spark, hub, "orders")
        assert frame.count() == 40
        backend.compact(Partition("orders", 0, 0), lambda: 40)
        orders.push(b"new", key="c9")
        left = read(spark, hub, "orders").count()
        assert left < 40
        assert frame.count() == left


def test_a_filter_reads_only_the_tasks_that_it_needs(
    spark: SparkSession, hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    frame = read(spark, hub, "orders")
    everything = frame.collect()
    for condition, kept in (
        ("partition = 1", lambda row: row["partition"] == 1),
        ("partition IN (1, 3)", lambda row: row["partition"] in (1, 3)),
        ("partition > 2 AND storage = 0", lambda row: row["partition"] == 3),
        ("offset >= 5 AND offset < 7", lambda row: 5 <= row["offset"] < 7),
        ("offset IN (2, 7)", lambda row: row["offset"] in (2, 7)),
        ("topic = 'orders' AND key = 'c3'", lambda row: row["key"] == b"c3"),
        ("topic = 'other'", lambda _: False),
    ):
        expected = sorted(row for row in everything if kept(row))
        assert sorted(frame.where(condition).collect()) == expected, condition
    assert tasks(frame) == 4
    assert tasks(frame.where("partition = 1")) == 1
    assert tasks(frame.where("partition IN (1, 3)")) == 2
    assert frame.count() == 100, "a filter of another query has no effect"


def test_a_filter_on_time_reads_fewer_bytes_and_no_other_rows(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    for hour in range(10):
        when = NEW_YEAR_MS + hour * 3_600_000
        for second in (3, 1, 2):  # Times do not rise within a batch.
            orders.push(bytes(100_000), key="c1", timestamp=when + second * 1000)
    frame = read(spark, hub, "orders", maxRecordsPerPartition=3)
    assert tasks(frame) == 10
    late = frame.where("timestamp >= '2026-01-01T05:00:02Z' AND timestamp < '2026-01-01T07:00:00Z'")
    assert tasks(late) == 2
    found = sorted(row["timestamp"] for row in late.select("timestamp").collect())
    assert found == [
        datetime(2026, 1, 1, h, 0, s) for h, s in ((5, 2), (5, 3), (6, 1), (6, 2), (6, 3))
    ]


def test_two_filters_of_one_dataframe_in_one_query_do_not_mix(
    spark: SparkSession, hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    frame = read(spark, hub, "orders").select("partition", "value")
    counts = {
        row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()
    }
    one, all_of_them = frame.where("partition = 1").alias("a"), frame.alias("b")
    assert one.join(all_of_them, "value").count() == counts[1]
    assert all_of_them.join(one, "value").count() == counts[1]
    assert frame.where("partition = 1").union(frame.where("partition = 2")).count() == (
        counts[1] + counts[2]
    )


def test_filters_stay_with_spark_if_pushdown_is_turned_off(
    spark: SparkSession, hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    frame = read(spark, hub, "orders")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        one = frame.where("partition = 1")
        assert tasks(one) == 4
        assert {row["partition"] for row in one.collect()} == {1}
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_topic_is_loaded_by_its_path(
    spark: SparkSession, hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    source = spark.read.format("tailrace")
    assert source.load(f"{hub.backend.name}/orders").count() == 100
    assert source.option("subscribe", "orders").load(hub.backend.name).count() == 100


def test_the_plan_names_the_topic(
    spark: SparkSession, hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    frame: Any = read(spark, hub, "orders")
    assert "BatchScan tailrace orders" in frame._jdf.queryExecution().toString()


def test_the_native_reader_reads_the_columns_of_a_query_alone(
    spark: SparkSession, hub: tailrace.Hub, orders: tailrace.Topic[bytes], reader: str
) -> None:
    frame: Any = read(spark, hub, "orders").where("partition = 1").select("value")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert ("(native)" in plan) is (reader == "native")
    assert ("mode#" in plan) is (reader == "python"), "Spark asks Python for all columns"
    assert "Filter (" not in plan


def test_a_table_keeps_its_options_and_takes_rows(
    spark: SparkSession, hub: tailrace.Hub, orders: tailrace.Topic[bytes], table: str
) -> None:
    spark.sql(
        f"CREATE TABLE {table} (key BINARY, value BINARY) USING tailrace"
        f" OPTIONS (hub '{hub.backend.name}', subscribe 'orders')"
    )
    assert spark.table(table).count() == 100
    spark.sql(f"INSERT INTO {table} SELECT CAST('c9' AS BINARY), CAST('by hand' AS BINARY)")
    assert spark.table(table).where("value = 'by hand'").count() == 1
    assert read(spark, hub, "orders").where("key = 'c9' AND value = 'by hand'").count() == 1


def test_a_table_may_have_all_columns_and_the_location_of_a_topic(
    spark: SparkSession, hub: tailrace.Hub, orders: tailrace.Topic[bytes], table: str
) -> None:
    spark.sql(f"CREATE TABLE {table} USING tailrace LOCATION '{hub.backend.name}/orders'")
    assert spark.table(table).columns == read(spark, hub, "orders").columns
    orders.push_many(numbers(11))
    assert spark.table(table).where("key = 'c3'").count() == 10
    with pytest.raises(PySparkException) as caught:
        spark.sql(f"INSERT OVERWRITE {table} SELECT * FROM {table}")
    assert "a topic cannot be overwritten" in (tailrace_message(caught.value) or "")
