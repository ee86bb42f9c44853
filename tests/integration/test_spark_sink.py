"""Rows of Spark written to topics, as batches and as streams."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tailrace
from tests.integration.topics_on_spark import numbers, read, stream
from tests.support.spark_errors import tailrace_message

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.part("pipelines"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


def write(frame: DataFrame, hub: tailrace.Hub, **options: str) -> None:
    writing = frame.write.format("tailrace").option("hub", hub.backend.name)
    writing.options(**options).mode("append").save()


def test_rows_that_are_read_can_be_written_unchanged(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=2)
    orders.push_many(numbers(1000))
    orders.push("ключ".encode(), key="ключ 🔑", headers={"a": b"1", "b": b""}, timestamp=5)
    orders.push(bytes(1 << 20), key=b"\xff\x00")
    hub.create_topic("copies", bytes, partitions=2)
    names = ["key", "value", "headers", "timestamp", "op", "mode"]
    write(read(spark, hub, "orders", includeHeaders="true").select(names), hub, topic="copies")
    both = [
        read(spark, hub, topic, includeHeaders="true").select([*names, "partition", "offset"])
        for topic in ("orders", "copies")
    ]
    original, copied = ({str(row) for row in frame.collect()} for frame in both)
    assert len(original) == 1002
    assert copied == original


def test_rows_become_messages(spark: SparkSession, hub: tailrace.Hub) -> None:
    copies = hub.create_topic("copies", partitions=1)
    when = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [("c7", '{"n": 1}', {"trace": b"x"}, when, "update", "sync"), ("c7", "{}") + (None,) * 4]
    schema = (
        "key string, value string, headers map<string,binary>, timestamp timestamp,"
        " op string, mode string"
    )
    write(spark.createDataFrame(rows, schema).coalesce(1), hub, topic="copies")
    first, second = copies.read(0, 0, 0), copies.read(0, 0, 1)
    assert (first.key, first.data, dict(first.headers)) == ("c7", b'{"n": 1}', {"trace": b"x"})
    assert (first.timestamp, first.op, first.mode) == (
        when, tailrace.Op.UPDATE, tailrace.Mode.SYNC,
    )  # fmt: skip
    assert (second.data, dict(second.headers), second.op) == (b"{}", {}, tailrace.Op.INSERT)
    assert second.timestamp > when


def test_each_row_goes_to_the_topic_it_names(spark: SparkSession, hub: tailrace.Hub) -> None:
    topics = [hub.create_topic(name, bytes, partitions=1) for name in ("a", "b")]
    rows = [("a", "1"), ("b", "2"), ("a", "3")]
    frame = spark.createDataFrame(rows, "topic string, value string").coalesce(1)
    write(frame, hub)
    assert [[topic.read(0, 0, n).data for n in range(topic.storage_topics[0].ends[0])]
            for topic in topics] == [[b"1", b"3"], [b"2"]]  # fmt: skip
    write(frame, hub, topic="b")
    assert topics[1].storage_topics[0].ends == [4]


def test_a_row_with_a_partition_goes_there_and_others_by_their_key(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=4)
    rows = [("c1", str(number), number % 4 if number < 8 else None) for number in range(12)]
    frame = spark.createDataFrame(rows, "key string, value string, partition int").coalesce(1)
    write(frame, hub, topic="orders")
    found = {number: [message.data for message in _messages(orders, number)] for number in range(4)}
    expected = {number: [b"%d" % number, b"%d" % (number + 4)] for number in range(4)}
    expected[orders.route("c1")] += [b"8", b"9", b"10", b"11"]
    assert found == expected


def test_a_null_value_is_stored_as_a_deletion(spark: SparkSession, hub: tailrace.Hub) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    frame = spark.createDataFrame([("c1", "x"), ("c1", None)], "key string, value string")
    write(frame.coalesce(1), hub, topic="orders")
    stored = [(message.op, message.data) for message in _messages(orders, 0)]
    assert stored == [(tailrace.Op.INSERT, b"x"), (tailrace.Op.DELETE, b"")]
    rows = read(spark, hub, "orders").select("op", "value").collect()
    assert [(row["op"], bytes(row["value"])) for row in rows] == [("insert", b"x"), ("delete", b"")]


def test_all_rows_of_a_batch_are_stored_or_none(spark: SparkSession, hub: tailrace.Hub) -> None:
    orders = hub.create_topic("orders", bytes, partitions=2)
    frame = spark.range(0, 1000, 1, 4)
    fails = frame.selectExpr("if(id = 999, raise_error('torn'), cast(id as string)) AS value")
    with pytest.raises(PySparkException, match="torn"):
        write(fails, hub, topic="orders")
    assert orders.storage_topics[0].ends == [0, 0]
    assert _staged(hub) == []


def test_large_tasks_are_staged_and_nothing_stays_behind(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=2)
    frame = spark.range(0, 6000, 1, 2).selectExpr("repeat(cast(id as string), 500) AS value")
    for options in ({}, {"staging": str(tmp_path / "staging")}):
        write(frame, hub, topic="orders", **options)
    assert sum(orders.storage_topics[0].ends) == 12000
    assert _staged(hub) == []
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["id"]


def test_a_batch_write_that_its_application_numbers_is_stored_once(
    spark: SparkSession, hub: tailrace.Hub
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    for version, expected in ((0, 1), (0, 1), (1, 2), (0, 2), (1, 2)):
        numbered = {"txnAppId": "totals", "txnVersion": str(version)}
        write(spark.sql("SELECT 'x' AS value"), hub, topic="orders", **numbered)
        assert orders.storage_topics[0].ends == [expected]


def _messages(topic: tailrace.Topic[bytes], number: int) -> list[tailrace.Message[bytes]]:
    where = tailrace.Partition(topic.name, 0, number)
    return [
        message
        for records in topic.batches(0, number)
        for message in topic.messages(where, records)
    ]


def _staged(hub: tailrace.Hub) -> list[str]:
    staging = Path(hub.backend.name, "hub.spark", "staging")
    return [path.name for path in staging.iterdir() if path.name != "id"]


def test_a_stream_is_written_and_continues_after_a_restart(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=2)
    copies = hub.create_topic("copies", bytes, partitions=4)
    for first in (0, 100):
        orders.push_many(numbers(100, first))
        writing = stream(spark, hub, "orders", maxOffsetsPerTrigger=30).select("key", "value")
        writer = writing.writeStream.format("tailrace").trigger(availableNow=True)
        writer = writer.option("hub", hub.backend.name).option("topic", "copies")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(90)
    found = [
        (message.key, int(message.data))
        for where, records in _reads(copies)
        for message in copies.messages(where, records)
    ]
    assert sorted(number for _, number in found) == list(range(200))
    newest: dict[str | None, int] = {}
    for key, number in found:
        assert newest.get(key, -1) < number
        newest[key] = number


def _reads(topic: tailrace.Topic[bytes]) -> Iterator[tuple[tailrace.Partition, pa.RecordBatch]]:
    reader = topic.reader()
    while reads := reader.poll():
        yield from reads


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("'x' AS value, 1 AS offset", {"topic": "orders"}, "a column is 'offset' · valid: key,"),
        ("'x' AS key", {"topic": "orders"}, "columns is ['key'] · valid: value, and any of key,"),
        ("1 AS value", {"topic": "orders"}, "the type of column 'value' is 'int' · valid: binary"),
        ("'x' AS value", {"topic": "order"}, "did you mean 'orders'?"),
        ("'x' AS value", {}, "no topic to write to is given"),
        ("'x' AS value", {"topik": "orders"}, "did you mean 'topic'?"),
        (
            "cast(null as string) AS value, 'update' AS op",
            {"topic": "orders"},
            "column 'value' is None · valid: a value that is not null with op 'update'",
        ),
        (
            "'x' AS value, 1 AS partition",
            {"topic": "orders"},
            "a partition is 1 · valid: 0 to 0 for orders, storage topic 0",
        ),
        (
            "'x' AS value",
            {"topic": "orders", "txnAppId": "a"},
            "only one of the options 'txnAppId'",
        ),
        ("'x' AS value, 'erase' AS op", {"topic": "orders"}, "column 'op' is 'erase' · valid: in"),
        ("'x' AS value, 'order' AS topic", {}, "no topic 'order' in"),
        ("'x' AS value, cast(null as string) AS topic", {}, "column 'topic' is None"),
        ("repeat('x', 1 + (1 << 20)) AS value", {"topic": "orders"}, "1,048,577 bytes"),
    ],
)
def test_rows_that_are_not_messages_are_refused_in_one_sentence(
    spark: SparkSession, hub: tailrace.Hub, columns: str, options: dict[str, str], says: str
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(f"SELECT {columns}"), hub, **options)
    assert says in (tailrace_message(caught.value) or "")
    assert orders.storage_topics[0].ends == [0]


def test_a_batch_and_a_stream_with_a_value_that_is_not_json_store_nothing_in_a_topic_of_json(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    orders.push_many([("c7", b"{}"), ("c8", b"by hand")])
    documents = hub.create_topic("documents", partitions=1)
    says = "row 1 of task 0 with key 'c8' has the value 'by hand', which is not JSON: "
    with pytest.raises(PySparkException) as caught:
        write(read(spark, hub, "orders").select("key", "value"), hub, topic="documents")
    assert (tailrace_message(caught.value) or "").startswith(says)
    rows = stream(spark, hub, "orders").select("key", "value")
    writer = rows.writeStream.format("tailrace").trigger(availableNow=True)
    writer = writer.option("hub", hub.backend.name).option("topic", "documents")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException) as ended:
        writer.start().awaitTermination(90)
    assert says in str(ended.value)
    assert documents.storage_topics[0].ends == [0]
    assert writer.option("anyType", "true").start().awaitTermination(90)
    assert documents.storage_topics[0].ends == [2]


def test_a_topic_is_never_overwritten(spark: SparkSession, hub: tailrace.Hub) -> None:
    hub.create_topic("orders", bytes, partitions=1)
    writing = spark.sql("SELECT 'x' AS value").write.format("tailrace").mode("overwrite")
    with pytest.raises(PySparkException) as caught:
        writing.option("hub", hub.backend.name).option("topic", "orders").save()
    assert tailrace_message(caught.value) == "a topic cannot be overwritten · valid: mode('append')"
