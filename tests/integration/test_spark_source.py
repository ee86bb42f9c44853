"""Topics read as batches by Spark itself."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tailrace
from tests.integration.topics_on_spark import numbers, read, values
from tests.support.spark_errors import tailrace_message

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.part("pipelines"),
    pytest.mark.usefixtures("reader"),
]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


def test_rows_pass_through_sockets_of_this_user_alone(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    directory = Path(str(spark.conf.get("spark.python.unix.domain.socket.dir")))
    spark.range(1).rdd.map(str).collect()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert any(each.is_socket() for each in directory.iterdir())


def test_every_column_has_the_pushed_values(spark: SparkSession, hub: tailrace.Hub) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    orders.push(b"first", key="c7", timestamp=when, headers={"trace": b"\x00\xff", "kind": "x"})
    columns: list[pa.Array[Any]] = [
        pa.array([b"second"]),
        pa.array([2]),
        pa.array([1]),
        pa.array([when]),
    ]
    names = ["value", "op", "mode", "timestamp"]
    orders.append(pa.RecordBatch.from_arrays(columns, names=names))
    frame = read(spark, hub, "orders", includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,headers:array<struct<key:string,value:binary>>,"
        "storage:int,op:string,mode:string>"
    )
    first, second = (row.asDict(recursive=True) for row in frame.orderBy("offset").collect())
    local = when.replace(tzinfo=None)
    headers = [{"key": "trace", "value": b"\x00\xff"}, {"key": "kind", "value": b"x"}]
    assert first == {
        "key": b"c7", "value": b"first", "topic": "orders", "partition": 0, "offset": 0,
        "timestamp": local, "headers": headers, "storage": 0, "op": "insert", "mode": "copy",
    }  # fmt: skip
    assert second == {
        "key": None, "value": b"second", "topic": "orders", "partition": 0, "offset": 1,
        "timestamp": local, "headers": None, "storage": 0, "op": "delete", "mode": "sync",
    }  # fmt: skip
    assert "headers" not in read(spark, hub, "orders").columns


def test_keys_and_values_of_any_bytes_come_back(spark: SparkSession, hub: tailrace.Hub) -> None:
    orders = hub.create_topic("orders", bytes, partitions=4)
    pushed: list[tuple[str | bytes | None, bytes]] = [
        ("ключ 🔑", "значение".encode()),
        (b"\x00\xff\xfe", bytes(range(256))),
        (None, b"no key"),
        ("big", bytes(1 << 20)),
        ("empty", b""),
    ]
    orders.push_many(pushed)
    found = {(row["key"], row["value"]) for row in read(spark, hub, "orders").collect()}
    assert found == {(k.encode() if isinstance(k, str) else k, v) for k, v in pushed}


def test_an_empty_topic_has_columns_and_no_rows(spark: SparkSession, hub: tailrace.Hub) -> None:
    hub.create_topic("orders", bytes)
    frame = read(spark, hub, "orders")
    assert frame.columns[:2] == ["key", "value"]
    assert frame.collect() == []


def test_many_records_are_each_read_once(spark: SparkSession, hub: tailrace.Hub) -> None:
    orders = hub.create_topic("orders", bytes, partitions=4)
    for first in range(0, 100_000, 25_000):
        orders.push_many(numbers(25_000, first))
    frame = read(spark, hub, "orders")
    assert frame.rdd.getNumPartitions() == 4
    summary = "count(1)", "count(distinct value)", "sum(cast(cast(value as string) as bigint))"
    assert tuple(frame.selectExpr(*summary).first() or ()) == (100_000, 100_000, 4_999_950_000)
    split = read(spark, hub, "orders", minPartitions=10)
    assert split.rdd.getNumPartitions() >= 10
    assert split.select("value").distinct().count() == split.count() == 100_000


def test_all_storage_topics_of_a_scaled_topic_are_read(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=2)
    for storage, partitions in enumerate((4, 3, 3)):
        orders.push_many(numbers(100, storage * 100))
        orders.scale(partitions)
    counts = read(spark, hub, "orders").groupBy("storage").count().collect()
    assert {row["storage"]: row["count"] for row in counts} == {0: 100, 1: 100, 2: 100}


def test_several_topics_are_read_by_name_and_by_pattern(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    for name in ("shop.orders", "shop.payments", "shopping"):
        hub.create_topic(name, bytes, partitions=1).push(name.encode())
    both = read(spark, hub, "shop.orders,shopping")
    assert sorted(values(both)) == [b"shop.orders", b"shopping"]
    source = spark.read.format("tailrace").option("hub", hub.backend.name)
    matching = source.option("subscribePattern", "shop[.].*").load()
    assert sorted(values(matching)) == [b"shop.orders", b"shop.payments"]


def test_a_range_of_offsets_is_read(spark: SparkSession, hub: tailrace.Hub) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    orders.push_many([(None, b"%d" % n) for n in range(10)])
    orders.scale(2)
    orders.push_many([("c1", b"10"), ("c1", b"11")])

    def between(start: dict[str, int], end: dict[str, int]) -> list[int]:
        frame = read(
            spark,
            hub,
            "orders",
            startingOffsets=json.dumps({"orders": start}),
            endingOffsets=json.dumps({"orders": end}),
        )
        return sorted(map(int, values(frame)))

    assert between({"0.0": 3}, {"0.0": 7, "1.0": -2, "1.1": -2}) == [3, 4, 5, 6]
    assert between({"0.0": 8}, {}) == [8, 9, 10, 11]
    assert between({"0.0": -2, "1.0": -1, "1.1": -1}, {"0.0": 1}) == [0]
    assert between({"0.0": -1}, {}) == [10, 11]


def test_a_read_may_start_at_a_timestamp(spark: SparkSession, hub: tailrace.Hub) -> None:
    orders = hub.create_topic("orders", bytes, partitions=2)
    for n in range(20):
        orders.push(b"%d" % n, key=f"c{n % 4}", timestamp=1_767_225_600_000 + 1000 * n)
    newer = read(spark, hub, "orders", startingTimestamp="2026-01-01T00:00:15Z")
    assert sorted(map(int, values(newer))) == [15, 16, 17, 18, 19]
    assert read(spark, hub, "orders", startingTimestamp=1_767_225_700_000).count() == 0


def test_only_the_columns_of_a_given_schema_are_read(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    hub.create_topic("orders", bytes, partitions=1).push(b"x", key="c7", headers={"a": b"b"})
    source = spark.read.format("tailrace").option("hub", hub.backend.name)
    source = source.option("subscribe", "orders")
    frame = source.schema("headers array<struct<key:string,value:binary>>, value binary").load()
    [row] = frame.collect()
    assert row.asDict(recursive=True) == {"headers": [{"key": "a", "value": b"b"}], "value": b"x"}
    with pytest.raises(PySparkException) as caught:
        source.schema("value string").load().collect()
    assert (
        tailrace_message(caught.value) == "the type of column 'value' is 'string' · valid: binary"
    )


def test_a_topic_is_read_by_sql(spark: SparkSession, hub: tailrace.Hub) -> None:
    hub.create_topic("orders", bytes, partitions=1).push_many(numbers(10))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders_by_sql USING tailrace"
        f" OPTIONS (hub '{hub.backend.name}', subscribe 'orders')"
    )
    (row,) = spark.sql("SELECT count(*) AS n FROM orders_by_sql WHERE key = 'c3'").collect()
    assert row["n"] == 1


def test_an_error_is_one_sentence(spark: SparkSession, hub: tailrace.Hub) -> None:
    hub.create_topic("orders", bytes, partitions=1)
    with pytest.raises(PySparkException) as unknown_option:
        read(spark, hub, "orders", startingOffset="earliest")
    with pytest.raises(PySparkException) as unknown_topic:
        read(spark, hub, "order")
    with pytest.raises(PySparkException) as no_partition:
        read(spark, hub, "orders", startingOffsets='{"orders": {"0.7": 1}}').collect()
    assert (tailrace_message(unknown_option.value) or "").startswith(
        "the data source tailrace has no option 'startingoffset' · did you mean 'startingOffsets'?"
    )
    assert "no topic 'order' in" in (tailrace_message(unknown_topic.value) or "")
    assert "did you mean 'orders'? (1 topic here)" in (tailrace_message(unknown_topic.value) or "")
    assert tailrace_message(no_partition.value) == (
        "partition of storage topic 0 of 'orders' is 7 · valid: 0 to 0"
    )
    assert "Traceback" not in str(unknown_topic.value)


def test_a_directory_without_a_hub_is_refused_and_stays_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = spark.read.format("tailrace").option("hub", str(tmp_path)).option("subscribe", "x")
    with pytest.raises(PySparkException) as caught:
        source.load()
    assert "no hub in" in (tailrace_message(caught.value) or "")
    assert list(tmp_path.iterdir()) == []


def test_missing_offsets_fail_unless_loss_is_accepted(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    hub.create_topic("orders", bytes, partitions=1).push_many(numbers(10))
    beyond = {"endingOffsets": '{"orders": {"0.0": 99}}'}
    with pytest.raises(PySparkException) as caught:
        read(spark, hub, "orders", **beyond).collect()
    assert "orders/0.0@99 does not exist" in (tailrace_message(caught.value) or "")
    assert read(spark, hub, "orders", failOnDataLoss="false", **beyond).count() == 10


def test_damage_is_named_and_never_served(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    orders.push_many(numbers(10))
    (log,) = (tmp_path / "hub").rglob("*.log")
    with log.open("r+b") as file:
        file.seek(40)
        file.write(b"\xff")
    with pytest.raises(PySparkException) as caught:
        read(spark, hub, "orders").collect()
    said = tailrace_message(caught.value) or ""
    assert said.startswith("orders/0.0@0 to @9 is damaged")
    assert "the checksum does not match" in said
