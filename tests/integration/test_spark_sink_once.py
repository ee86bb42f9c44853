"""Streams that are written to topics exactly once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tailrace
from tests.integration.topics_on_spark import numbers, read, stream, values

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.part("pipelines"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        opened.create_topic("orders", bytes, partitions=2).push_many(numbers(100))
        opened.create_topic("copies", bytes, partitions=2)
        yield opened


def run(
    frame: DataFrame, hub: tailrace.Hub, mode: str = "append", **options: str
) -> StreamingQuery:
    """Write what there is to the topic copies, and wait for the end."""
    writer = frame.writeStream.format("tailrace").outputMode(mode).trigger(availableNow=True)
    writer = writer.option("hub", hub.backend.name).option("topic", "copies").options(**options)
    query = writer.start()
    assert query.awaitTermination(180)
    return query


def orders(spark: SparkSession, hub: tailrace.Hub) -> DataFrame:
    return stream(spark, hub, "orders", maxOffsetsPerTrigger=60).select("key", "value")


def newest_batch(checkpoint: Path) -> int:
    """The batch that Spark planned last."""
    return max(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))


def forget(checkpoint: Path, folder: str) -> None:
    """Remove the newest batch from a log of Spark, with its checksum."""
    newest = newest_batch(checkpoint)
    (checkpoint / folder / str(newest)).unlink()
    (checkpoint / folder / f".{newest}.crc").unlink(missing_ok=True)


def forget_commit(checkpoint: Path) -> None:
    """Leave a checkpoint as a driver does that was killed after the sink's last commit."""
    forget(checkpoint, "commits")


def test_a_batch_that_spark_repeats_after_a_crash_is_stored_once(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    located = {"checkpointLocation": str(checkpoint), "queryName": "copy"}
    run(orders(spark, hub), hub, **located)
    forget_commit(checkpoint)
    hub.topic("orders", bytes).push_many(numbers(50, 100))
    run(orders(spark, hub), hub, **located)
    assert Counter(int(value) for value in values(read(spark, hub, "copies"))) == Counter(
        range(150)
    )


def test_a_batch_number_that_comes_again_with_other_offsets_is_not_skipped(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    run(orders(spark, hub), hub, checkpointLocation=str(checkpoint))
    for folder in ("commits", "offsets"):  # As after a crash of the machine.
        forget(checkpoint, folder)
    hub.topic("orders", bytes).push_many(numbers(50, 100))
    run(orders(spark, hub), hub, checkpointLocation=str(checkpoint))
    assert {int(value) for value in values(read(spark, hub, "copies"))} == set(range(150))


def test_a_deleted_checkpoint_writes_all_rows_again(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    for _ in range(2):
        run(orders(spark, hub), hub, checkpointLocation=str(tmp_path / "checkpoint"))
        shutil.rmtree(tmp_path / "checkpoint")
    assert sum(hub.topic("copies").storage_topics[0].ends) == 200


def test_the_checkpoint_of_a_session_identifies_a_query_by_its_name(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    setting = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(setting, str(tmp_path / "checkpoints"))
    try:
        run(orders(spark, hub), hub, queryName="named")
        forget_commit(tmp_path / "checkpoints" / "named")
        run(orders(spark, hub), hub, queryName="named")
    finally:
        spark.conf.unset(setting)
    assert sum(hub.topic("copies").storage_topics[0].ends) == 100


def test_complete_mode_appends_the_whole_result_of_each_batch(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    totals = orders(spark, hub).groupBy("key").count()
    rows = totals.selectExpr("key", "cast(count as string) AS value")
    query = run(rows, hub, "complete", checkpointLocation=str(tmp_path / "checkpoint"))
    batches = [each for each in query.recentProgress if each["sink"]["numOutputRows"]]
    assert len(batches) > 1
    assert sum(hub.topic("copies").storage_topics[0].ends) == 11 * len(batches)
    newest: dict[bytes, int] = {}
    for row in read(spark, hub, "copies").orderBy("partition", "offset").collect():
        newest[bytes(row["key"])] = int(row["value"])
    assert sum(newest.values()) == 100


def test_spark_refuses_update_mode_for_a_sink_in_python(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    totals = orders(spark, hub).groupBy("key").count()
    rows = totals.selectExpr("key", "cast(count as string) AS value")
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        run(rows, hub, "update", checkpointLocation=str(tmp_path / "checkpoint"))


def test_update_mode_is_written_once_by_foreach_batch(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path
) -> None:
    hub_directory = hub.backend.name

    def append(rows: DataFrame, batch: int) -> None:
        writer = rows.selectExpr("key", "cast(count as string) AS value").write
        writer = writer.format("tailrace").option("hub", hub_directory).option("topic", "copies")
        writer = writer.option("txnAppId", "totals").option("txnVersion", str(batch))
        for _ in range(2):  # Spark repeats a batch after a crash.
            writer.mode("append").save()

    totals = orders(spark, hub).groupBy("key").count()
    writer = totals.writeStream.outputMode("update").foreachBatch(append)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(180)
    newest: dict[bytes, int] = {}
    rows = read(spark, hub, "copies").orderBy("partition", "offset").collect()
    for row in rows:
        newest[bytes(row["key"])] = int(row["value"])
    assert sum(newest.values()) == 100
    assert len(rows) == len({(row["key"], row["value"]) for row in rows})
