"""`tailrace.spark.read`: the same rows by Python and by the native reader."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

import tailrace
import tailrace.spark
from tailrace.backend.capabilities import compaction_of
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.spark.frames.native import SWITCH
from tests.integration.topics_on_spark import numbers, read
from tests.support.topics import push_for

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.part("pipelines")]

ALL = ["key", "value", "topic", "partition", "offset", "timestamp", "headers", "storage", "op",
       "mode"]  # fmt: skip


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    settings = tailrace.HubSettings(segment_bytes=20_000)
    with tailrace.open(tmp_path / "hub", sync="none", settings=settings) as opened:
        yield opened


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    ordered = frame.orderBy("topic", "storage", "partition", "offset")
    return [row.asDict(recursive=True) for row in ordered.collect()]


def _fill(hub: tailrace.Hub) -> tailrace.Topic[bytes]:
    """Make a topic with all that records can have, in many segments, of two storage topics."""
    orders = hub.create_topic("orders", bytes, partitions=2)
    columns: dict[str, Any] = {
        "key": [None if n % 5 == 0 else b"k%d" % (n % 7) for n in range(600)],
        "value": [bytes([n % 256]) * (n % 300) for n in range(600)],
        "op": [n % 5 for n in range(600)],
        "mode": [n % 3 for n in range(600)],
        "timestamp": [1_700_000_000_000 + n for n in range(600)],
    }
    columns["headers"] = pa.array(
        [[(f"h{i}", b"\x00" * i) for i in range(n % 4)] if n % 3 else None for n in range(600)],
        pa.map_(pa.string(), pa.binary()),
    )
    orders.append(pa.RecordBatch.from_pydict(columns))
    orders.push_many([(f"c{n % 9}", b"even-%04d" % n) for n in range(2000)])
    for n in range(50):
        orders.push(b"single", key="s", headers={f"name-{n}": b"x" * n * 40, "ключ": b"\xff"})
    push_for(orders, "billing", b"for one", key="c")
    orders.push(b"", key="empty")
    orders.scale(3)
    orders.push_many(numbers(500))
    return orders


def test_both_readers_return_the_rows_of_the_data_source(
    spark: SparkSession, hub: tailrace.Hub, reader: str
) -> None:
    orders = _fill(hub)
    for control in ("true", "false"):
        options = {"includeControl": control, "includeHeaders": "true"}
        expected = _rows(read(spark, hub, "orders", **options))
        found = tailrace.spark.read(spark, orders, options=options)
        assert found.columns == ALL
        assert _rows(found) == expected
        assert len(expected) == (3152 if control == "true" else 2791)


def _plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def _sorted(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


@pytest.mark.parametrize("names", [[*ALL[:6], *ALL[7:]], ["mode", "value", "topic"], ["offset"]])
@pytest.mark.parametrize("control", [True, False])
def test_rows_and_columns_of_the_native_reader_are_those_of_python(
    spark: SparkSession, hub: tailrace.Hub, names: list[str], control: bool
) -> None:
    orders = _fill(hub)
    options = {"includeControl": control}
    in_rows = tailrace.spark.read(spark, orders, columns=names, options=options)
    in_columns = in_rows.where(functions.hash(*names).bitwiseAND(1) < 2)
    spark.conf.set(SWITCH, "false")
    expected = _sorted(tailrace.spark.read(spark, orders, columns=names, options=options))
    spark.conf.unset(SWITCH)
    assert "ColumnarToRow" not in _plan(in_rows)
    assert "ColumnarToRow" in _plan(in_columns)
    for frame in (in_rows, in_columns, in_rows.repartition(2)):
        assert _sorted(frame) == expected


def test_only_asked_columns_are_read_in_their_order(
    spark: SparkSession, hub: tailrace.Hub, reader: str
) -> None:
    _fill(hub)
    path = hub.backend.name
    frame = tailrace.spark.read(spark, "orders", hub=path, columns=["headers", "offset", "value"])
    assert frame.columns == ["headers", "offset", "value"]
    assert "includeHeaders" not in frame.columns
    assert frame.where("headers is not null").count() > 0
    assert frame.selectExpr("headers.key as names").where("names is not null").count() > 0
    assert frame.selectExpr("explode(headers.value) as each").count() > 0
    assert tailrace.spark.read(spark, "orders", hub=hub, columns=["topic"]).count() == 2791


def test_only_keys_and_headers_may_be_null(
    spark: SparkSession, hub: tailrace.Hub, reader: str
) -> None:
    topic = hub.create_topic("orders", bytes, partitions=1)
    topic.push(b"x")
    for frame in (
        tailrace.spark.read(spark, topic, columns=ALL),
        read(spark, hub, "orders", includeHeaders="true"),
    ):
        assert {each.name for each in frame.schema.fields if each.nullable} == {"key", "headers"}
        assert frame.where("value is null").count() == 0


def test_a_session_of_tailrace_does_not_check_each_access_of_arrow_again(
    spark: SparkSession,
) -> None:
    properties: Any = spark._jvm
    name = "arrow.enable_unsafe_memory_access"
    assert properties.java.lang.System.getProperty(name) == "true"


def test_offsets_cut_batches_anywhere(spark: SparkSession, hub: tailrace.Hub, reader: str) -> None:
    topic = hub.create_topic("orders", bytes, partitions=1)
    for first in range(0, 3000, 300):
        topic.push_many(numbers(300, first=first))
    for start, end in ((0, 3000), (1, 2), (299, 301), (17, 2983), (2999, 3000), (300, 600)):
        frame = tailrace.spark.read(
            spark,
            "orders",
            hub=hub,
            starting={"orders": {"0.0": start}},
            ending={"orders": {"0.0": end}},
            options={"minPartitions": 3},
        )
        assert [row["offset"] for row in _rows(frame)] == list(range(start, end))


def test_python_reads_many_partitions_by_as_many_tasks_as_there_are_cores(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    topic = hub.create_topic("orders", bytes, partitions=24)
    topic.push_many(numbers(240))
    spark.conf.set(SWITCH, "false")
    try:
        cores = spark.sparkContext.defaultParallelism
        for schema in (None, "id int"):
            frame = tailrace.spark.read(spark, topic, value_schema=schema)
            assert frame.rdd.getNumPartitions() == min(cores, 24)
            assert frame.count() == 240
        more = tailrace.spark.read(spark, topic, options={"minPartitions": 24})
        assert more.rdd.getNumPartitions() == 24
    finally:
        spark.conf.unset(SWITCH)


def test_an_empty_topic_gives_no_rows(spark: SparkSession, hub: tailrace.Hub, reader: str) -> None:
    hub.create_topic("orders", bytes, partitions=2)
    assert tailrace.spark.read(spark, "orders", hub=hub).collect() == []
    parsed = tailrace.spark.read(spark, "orders", hub=hub, value_schema="a int")
    assert parsed.schema["value"].dataType.simpleString() == "struct<a:int>"
    assert parsed.collect() == []


def test_a_frame_has_the_messages_of_the_time_of_the_call(
    spark: SparkSession, hub: tailrace.Hub, reader: str
) -> None:
    topic = hub.create_topic("orders", bytes, partitions=2)
    topic.push_many(numbers(100))
    frame = tailrace.spark.read(spark, topic)
    topic.push_many(numbers(50))
    assert frame.count() == 100
    assert tailrace.spark.read(spark, topic).count() == 150


def test_compacted_segments_are_read(spark: SparkSession, hub: tailrace.Hub, reader: str) -> None:
    topic = hub.create_topic("orders", bytes, partitions=1)
    for first in range(0, 4000, 100):
        topic.push_many(numbers(100, first=first))
    before = tailrace.spark.read(spark, topic)
    backend = compaction_of(hub.backend, "compact a topic")
    compacted = backend.compact(Partition("orders", 0, 0), lambda: 4000)
    assert compacted.rewritten > 1
    assert _rows(tailrace.spark.read(spark, topic)) == _rows(read(spark, hub, "orders"))
    if reader == "python":
        # A task on the hub's host looks the files up again.
        assert _rows(before) == _rows(tailrace.spark.read(spark, topic))
    else:
        with pytest.raises(PySparkException, match=r"was compacted .* · read the topic again"):
            before.collect()


def _logs(hub: tailrace.Hub) -> list[Path]:
    return sorted(Path(hub.backend.name).rglob("*.log"))


def test_damaged_bytes_are_named_and_never_served(
    spark: SparkSession, hub: tailrace.Hub, reader: str
) -> None:
    topic = hub.create_topic("orders", bytes, partitions=1)
    for first in range(0, 30, 10):
        topic.push_many(numbers(10, first=first))
    (log,) = _logs(hub)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0x10
    log.write_bytes(data)
    with pytest.raises(PySparkException) as damaged:
        tailrace.spark.read(spark, topic).collect()
    said = f"orders/0.0@10 to @19 is damaged in {log}: the checksum does not match"
    assert said in str(damaged.value)
    good = tailrace.spark.read(spark, topic, ending={"orders": {"0.0": 10}})
    assert [row["value"] for row in good.collect()] == [b"%d" % n for n in range(10)]


def test_a_file_that_is_too_short_is_damaged(
    spark: SparkSession, hub: tailrace.Hub, reader: str
) -> None:
    topic = hub.create_topic("orders", bytes, partitions=1)
    topic.push_many(numbers(10))
    (log,) = _logs(hub)
    os.truncate(log, log.stat().st_size - 5)
    with pytest.raises(PySparkException, match=r"orders/0.0@0 to @9 .* ends 5 bytes early"):
        tailrace.spark.read(spark, topic).collect()


def test_an_executor_that_does_not_see_the_hub_names_host_and_path(
    spark: SparkSession, tmp_path: Path, reader: str
) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        topic = hub.create_topic("orders", bytes, partitions=1)
        topic.push_many(numbers(10))
        frame = tailrace.spark.read(spark, topic)
    (tmp_path / "hub").rename(tmp_path / "elsewhere")
    with pytest.raises(PySparkException) as failed:
        frame.collect()
    said = f"host {socket.gethostname()} does not see the hub {tmp_path / 'hub'}"
    assert said in str(failed.value)
    assert "make its directory visible under the same path" in str(failed.value)
    assert "segment verify" not in str(failed.value)


HARD = [
    b'{"id": 1, "name": "x"}', b'{"id" 1}', b"", b"   ", b"null", b"[]", b'[{"id": 5}]',
    b'{"id": "q", "name": "z"}', b'{"id": 1.0, "name": 3}', b'{"id": 1}{"id": 2}', b'{"id": 1} x',
    b"{}", b'{"name": {"k": 1}}', b'{"id": null}', b'{"id": 1, "name": "x"', b"{'id': 1}",
    b'{"id": NaN, "total": NaN}', b'{"total": 1e400}', b'{"total": "1.5"}', b'{"ID": 1}',
    b'{"id": 1, "id": 2}', b'{"tags": [1, null]}', b'{"tags": null}',
    b'{"id": 9223372036854775808}',
    b'{"total": 12345678901234567890}', b'{"name": "\\ud800"}', b'{"name": "\xff"}', b"3",
    b'{"name": "a\nb"}', b'{\n "id": 7,\n "tags": [1,\n 2]\n}', b'{"total": 3, "tags": []}',
    b'{"total": -0.0, "id": -0}', '{"name": "ключ \\u043a"}'.encode(),
    b'{"at": {"x": 1, "y": true}}',
    b'{"at": {"y": "no"}}', b'{"name": "2026-01-01T00:00:00"}', b'{"total": 0.1}',
]  # fmt: skip
DDL = "id bigint, name string, total double, tags array<int>, at struct<x: int, y: boolean>"


@pytest.mark.parametrize("spread", [1, 400])
def test_values_are_what_from_json_makes_of_them(
    spark: SparkSession, hub: tailrace.Hub, reader: str, spread: int
) -> None:
    topic = hub.create_topic("orders", bytes, partitions=1)
    plain = [b'{"id": %d, "name": "n%d", "total": %d.25}' % (n, n, n) for n in range(spread)]
    topic.push_many([(None, value) for hard in HARD for value in (*plain, hard)])
    frame = tailrace.spark.read(spark, topic, columns=["offset", "value"], value_schema=DDL)
    bytes_read = tailrace.spark.read(spark, topic, columns=["offset", "value"])
    expected = bytes_read.withColumn(
        "value", functions.from_json(functions.col("value").cast("string"), DDL)
    )
    assert frame.schema == expected.schema
    both = zip(_by_offset(frame), _by_offset(expected), strict=True)
    assert [pair for pair in both if pair[0] != pair[1]] == []


def _parsed_by_spark(frame: DataFrame, ddl: str) -> DataFrame:
    text = functions.col("value").cast("string")
    return frame.withColumn("value", functions.from_json(text, ddl))


def _by_offset(frame: DataFrame) -> list[str]:
    # As text, because NaN is not equal to itself.
    return [str(row) for row in frame.orderBy("offset").collect()]


@pytest.mark.parametrize("ddl", ["at timestamp, n decimal(9,2)", "id int, _corrupt_record string"])
def test_types_that_only_spark_reads_are_read_by_spark(
    spark: SparkSession, hub: tailrace.Hub, reader: str, ddl: str
) -> None:
    topic = hub.create_topic("orders", bytes, partitions=1)
    values = [{"at": "2026-01-01T00:00:00Z", "n": 1.25, "id": 3}, {"at": "x", "id": "no"}]
    topic.push_many([(None, json.dumps(value).encode()) for value in values])
    columns = ["offset", "value"]
    frame = tailrace.spark.read(spark, topic, columns=columns, value_schema=ddl)
    bytes_read = tailrace.spark.read(spark, topic, columns=columns)
    expected = bytes_read.withColumn(
        "value", functions.from_json(functions.col("value").cast("string"), ddl)
    )
    assert _by_offset(frame) == _by_offset(expected)


def test_wrong_arguments_are_refused_with_what_is_valid(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    hub.create_topic("orders", bytes, partitions=1)
    wrong: list[dict[str, Any]] = [
        {"columns": ["valu"]}, {"columns": "value"}, {"columns": []}, {"columns": ["key", "key"]},
        {"value_schema": 3}, {"starting": "latest"}, {"ending": "earliest"},
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(InvalidValue, match="valid"):
            tailrace.spark.read(spark, "orders", hub=hub, **arguments)
    with pytest.raises(tailrace.ConfigError, match="no option 'startngOffsets'"):
        tailrace.spark.read(spark, "orders", hub=hub, options={"startngOffsets": "earliest"})
    with pytest.raises(tailrace.UnknownTopic):
        tailrace.spark.read(spark, "order", hub=hub)
