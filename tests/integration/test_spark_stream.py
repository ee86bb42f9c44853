"""Topics read as streams by Spark itself: restarts, limits, and order while a topic is scaled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

import tailrace
import tailrace.spark
from tests.integration.topics_on_spark import numbers, stream
from tests.support.spark_errors import tailrace_message

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.part("pipelines")]

DEADLINE_S = 90


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


class Collected:
    """The batches of a query, by number."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.batches[batch] = rows.collect()

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def values(self) -> list[int]:
        return [int(row["value"]) for row in self.rows]


def run_available(frame: DataFrame, checkpoint: Path) -> Collected:
    """Run a query over all present records."""
    collected = Collected()
    writing = frame.writeStream.foreachBatch(collected).trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(checkpoint)).start()
    assert query.awaitTermination(DEADLINE_S)
    return collected


def wait_for(condition: Callable[[], bool], query: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def newest_offset(query: Any) -> str:
    """Return the end offsets that the query last reported."""
    (progress,) = query.lastProgress["sources"]
    return str(progress["latestOffset"])


def test_available_now_reads_all_in_small_batches(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=3)
    orders.push_many(numbers(100))
    orders.scale(4)
    orders.push_many(numbers(100, 100))
    frame = stream(spark, hub, "orders", maxOffsetsPerTrigger=40)
    collected = run_available(frame, tmp_path / "checkpoint")
    assert sorted(collected.values) == list(range(200))
    assert all(len(batch) <= 40 for batch in collected.batches.values())
    assert len(collected.batches) >= 5


def test_a_restarted_query_continues_where_it_stopped(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=2)
    orders.push_many(numbers(50))
    frame = stream(spark, hub, "orders")
    assert sorted(run_available(frame, tmp_path / "checkpoint").values) == list(range(50))
    orders.push_many(numbers(20, 50))
    orders.scale(4)
    orders.push_many(numbers(30, 70))
    again = run_available(frame, tmp_path / "checkpoint")
    assert sorted(again.values) == list(range(50, 100))
    assert run_available(frame, tmp_path / "checkpoint").batches == {}


def test_order_per_key_holds_while_a_topic_is_scaled_and_read(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=2)
    orders.push_many(numbers(300))
    collected = Collected()
    frame = stream(spark, hub, "orders", maxOffsetsPerTrigger=200)
    query = frame.writeStream.foreachBatch(collected).start()
    try:
        pushed = 300
        for partitions in (4, 12, 3):
            orders.scale(partitions)
            orders.push_many(numbers(300, pushed))
            pushed += 300
            wait_for(lambda: len(collected.batches) > 0, query)
        wait_for(lambda: len(collected.values) >= pushed, query)
    finally:
        query.stop()
    assert sorted(collected.values) == list(range(pushed))
    newest: dict[bytes, int] = {}
    for _, batch in sorted(collected.batches.items()):
        for row in batch:
            assert newest.get(row["key"], -1) < int(row["value"])
            newest[row["key"]] = int(row["value"])
    assert {row["storage"] for row in collected.rows} == {0, 1, 2, 3}


def test_topics_created_while_a_query_runs_are_read(spark: SparkSession, hub: tailrace.Hub) -> None:
    hub.create_topic("shop.orders", bytes, partitions=1)
    source = spark.readStream.format("tailrace").option("hub", hub.backend.name)
    frame = source.option("subscribePattern", "shop[.].*").load()
    collected = Collected()
    query = frame.writeStream.foreachBatch(collected).start()
    try:
        wait_for(lambda: query.lastProgress is not None, query)
        hub.topic("shop.orders", bytes).push(b"1")
        wait_for(lambda: 1 in collected.values, query)
        hub.create_topic("shop.payments", bytes, partitions=1).push(b"2")
        wait_for(lambda: 2 in collected.values, query)
        wait_for(lambda: "shop.payments" in newest_offset(query), query)
    finally:
        query.stop()
    assert collected.values == [1, 2]


def test_limits_by_bytes_split_the_available_records(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    orders.push_many([(None, b"%d" % n + b" " * 200_000) for n in range(30)])
    frame = stream(spark, hub, "orders", maxBytesPerTrigger="1MiB")
    collected = run_available(frame, tmp_path / "checkpoint")
    assert sorted(collected.values) == list(range(30))
    assert [len(batch) for batch in collected.batches.values()] == [5] * 6


def test_a_topic_deleted_while_it_is_read_fails_the_query_in_one_sentence(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    hub.create_topic("orders", bytes, partitions=1).push(b"1")
    collected = Collected()
    query = stream(spark, hub, "orders").writeStream.foreachBatch(collected).start()
    wait_for(lambda: collected.values == [1], query)
    hub.delete_topic("orders")
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(DEADLINE_S)
    assert tailrace_message(caught.value) == (
        "topic 'orders' was deleted since it was last read"
        " · to continue with the existing records: option failOnDataLoss=false"
    )


def test_options_of_a_batch_are_refused_for_a_stream(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    hub.create_topic("orders", bytes, partitions=1)
    frame = stream(spark, hub, "orders", endingOffsets="latest")
    query = frame.writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(DEADLINE_S)
    said = tailrace_message(caught.value) or ""
    assert said.startswith("the option 'endingOffsets' is not valid for reading a stream")


def test_progress_reports_the_offsets_and_the_lag_of_a_query(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    hub.create_topic("orders", bytes, partitions=2).push_many(numbers(100))
    frame = stream(spark, hub, "orders", maxOffsetsPerTrigger=60)
    writing = frame.writeStream.foreachBatch(Collected()).trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert tailrace.spark.lag(query.lastProgress) in ({}, {"orders": 40}, {"orders": 0})
    assert query.awaitTermination(DEADLINE_S)
    lags = [tailrace.spark.lag(each) for each in query.recentProgress if each["numInputRows"]]
    assert lags == [{"orders": 40}, {"orders": 0}]
