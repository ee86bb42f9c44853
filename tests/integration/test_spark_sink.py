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
from tailrace.spark.plainly import sentence_of
from tests.integration.topics_on_spark import numbers, read, stream

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.part("pipelines")]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


def write(frame: DataFrame, hub: tailrace.Hub, **options: str) -> None:
    writing = frame.write.format("tailrace").option("hub", hub.backend.name)
    writing.options(**options).mode("append").save()


def test_what_is_read_can_be_written_and_is_the_same(
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


def test_a_stream_is_written_and_goes_on_after_a_restart(
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
        ("'x' AS value", {}, "nothing says which topic to write to"),
        ("'x' AS value", {"topik": "orders"}, "did you mean 'topic'?"),
        ("cast(null as string) AS value", {"topic": "orders"}, "column 'value'"),
        ("'x' AS value, 'erase' AS op", {"topic": "orders"}, "column 'op' is 'erase' · valid: in"),
        ("'x' AS value, 'order' AS topic", {}, "no topic 'order' in"),
        ("'x' AS value, cast(null as string) AS topic", {}, "column 'topic' is None"),
        ("repeat('x', 1 + (1 << 20)) AS value", {"topic": "orders"}, "1,048,577 bytes"),
    ],
)
def test_rows_that_are_no_messages_are_refused_in_one_sentence(
    spark: SparkSession, hub: tailrace.Hub, columns: str, options: dict[str, str], says: str
) -> None:
    orders = hub.create_topic("orders", bytes, partitions=1)
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(f"SELECT {columns}"), hub, **options)
    assert says in (sentence_of(caught.value) or "")
    assert orders.storage_topics[0].ends == [0]


def test_a_topic_is_never_overwritten(spark: SparkSession, hub: tailrace.Hub) -> None:
    hub.create_topic("orders", bytes, partitions=1)
    writing = spark.sql("SELECT 'x' AS value").write.format("tailrace").mode("overwrite")
    with pytest.raises(PySparkException) as caught:
        writing.option("hub", hub.backend.name).option("topic", "orders").save()
    assert sentence_of(caught.value) == "a topic cannot be overwritten · valid: mode('append')"
