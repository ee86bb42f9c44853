"""The names that Spark's web page and the progress of queries show: writers, queries, topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace import functions as fn
from tailrace.pipeline.engine.run_session import RunSession
from tailrace.pipeline.engine.spark_driver import spark_drivers
from tests.integration.topics_on_spark import numbers, stream
from tests.support.pipelines.recording_writer import RecordingWriter
from tests.support.pipelines.writer_bench import WriterBench, directory

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.part("pipelines")]


def described(spark: SparkSession) -> set[str]:
    """Return the descriptions of the jobs that Spark's web page lists."""
    context: Any = spark.sparkContext
    java = context._jsc.sc()
    java.listenerBus().waitUntilEmpty()
    jobs = java.statusStore().jobsList(None)
    found = (jobs.apply(number).description() for number in range(jobs.size()))
    return {str(each.get()) for each in found if each.isDefined()}


def test_a_job_of_a_writer_has_the_names_of_the_writer_and_of_the_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    with tailrace.open(tmp_path / "hub") as hub:
        writer = RecordingWriter(str(directory(tmp_path / "sink")))
        bench = WriterBench(hub, spark_drivers(RunSession(lambda: spark)), writer)
        bench.append("A" * 20)
        bench.run()
        bench.options = {"functions": [fn.sql("*", where="n > 0", schema="n BIGINT")]}
        bench.append("A" * 5)
        bench.run()
    assert {each for each in described(spark) if each.startswith("lake/out")} >= {
        "lake/out: lake.commits/0.0@0 to 19",
        "lake/out: lake.commits/0.0@20 to 24",
    }
    assert context.getLocalProperty("spark.job.description") is None


def test_a_named_query_into_a_topic_is_known_by_its_name_and_its_topics(
    spark: SparkSession, tmp_path: Path
) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        hub.create_topic("orders", bytes, partitions=1).push_many(numbers(10))
        hub.create_topic("copies", bytes, partitions=1)
        writer = stream(spark, hub, "orders").select("key", "value").writeStream.format("tailrace")
        writer = writer.queryName("copy orders").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("hub", hub.backend.name).option("topic", "copies").start()
        assert query.awaitTermination(180)
    progress: Any = query.recentProgress[0]
    assert (query.name, progress["name"]) == ("copy orders", "copy orders")
    assert "orders" in str(progress["sources"][0]["endOffset"])
    assert progress["sink"]["numOutputRows"] == 10
    assert any(each.startswith("copy orders") for each in described(spark))
