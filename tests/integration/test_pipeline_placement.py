"""Writers on Spark whose records come from the driver, or whose rows go back to it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace import functions as fn
from tailrace import writers
from tailrace.operations.pipeline.explain_writer import explain_writer
from tailrace.pipeline.definition.definition import PipelineDefinition, WriterDefinition
from tailrace.pipeline.engine import sent_records
from tailrace.pipeline.engine.driver import Driver, DriverOf
from tailrace.pipeline.engine.executors import Executors
from tailrace.pipeline.engine.run_session import RunSession
from tailrace.pipeline.engine.spark_driver import SparkDriver, spark_drivers
from tailrace.pipeline.writer import Writer
from tailrace.pipeline.writer_status import WaitsFor, WriterStatus
from tailrace.pipeline.writing.placement import Place, WorkPlacement
from tailrace.pipeline.writing.writer_run import WriterRun
from tailrace.spark.cluster.application import NoExecutors
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import RecordingWriter, delivered, set_bad
from tests.support.pipelines.writer_bench import WriterBench

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 3000
SENT = WorkPlacement(reading=Place.DRIVER)
RETURNED = WorkPlacement(writing=Place.DRIVER)
BOTH = WorkPlacement(reading=Place.DRIVER, writing=Place.DRIVER)


class NoExecutorsYet(Executors):
    """Executors that have not started."""

    def placement(self, name: str, writer: Writer, stopping: threading.Event) -> WorkPlacement:
        raise NoExecutors("no executor has started")


class AnsweredExecutors(Executors):
    """Executors whose answers a test has given."""

    answer = WorkPlacement()

    def placement(self, name: str, writer: Writer, stopping: threading.Event) -> WorkPlacement:
        return self.answer


def placed(spark: SparkSession, placement: WorkPlacement) -> DriverOf:
    """Drivers whose executors share as much as a placement says."""
    drivers = spark_drivers(RunSession(lambda: spark))

    def driver_of(
        hub: tailrace.Hub, pipeline: PipelineDefinition, writer: WriterDefinition
    ) -> Driver:
        driver = drivers(hub, pipeline, writer)
        assert isinstance(driver, SparkDriver)
        directory = Path(hub.backend.name, "hub.spark")
        answered = AnsweredExecutors(spark.sparkContext, hub, pipeline.commit_log, directory)
        answered.answer = placement
        driver.engine.executors = answered
        return driver

    return driver_of


@pytest.fixture(params=[SENT, RETURNED, BOTH], ids=["sent", "returned", "both"])
def bench(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[WriterBench]:
    (tmp_path / "sink").mkdir()
    with tailrace.open(tmp_path / "hub") as hub:
        yield WriterBench(
            hub, placed(spark, request.param), RecordingWriter(str(tmp_path / "sink"))
        )


def test_all_records_arrive_in_order_in_parts_of_a_limited_size(
    bench: WriterBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_records.cut_part, "__defaults__", (40_000,))
    bench.options = {"functions": [fn.python(same)]}
    bench.append("A" * ROWS, padding_bytes=50)
    run = bench.run()
    assert delivered(tmp_path / "sink") == list(range(ROWS))
    assert run.ledger.state.rows == ROWS
    assert bench.mark == ROWS


def test_records_pass_through_spark_sql(bench: WriterBench, tmp_path: Path) -> None:
    bench.options = {
        "functions": [fn.python(same), fn.sql("*", where="n % 2 = 0", schema="n BIGINT")]
    }
    bench.append("A" * 100)
    bench.run()
    assert delivered(tmp_path / "sink") == list(range(0, 100, 2))
    assert bench.mark == 100


def test_a_record_that_a_function_refuses_is_named_and_parked(
    bench: WriterBench, tmp_path: Path
) -> None:
    bench.options = {"functions": [fn.python(without_seven)]}
    bench.append("A" * 20)
    assert bench.run().ledger.state.position == "lake.commits/0.0@7"
    bench.options["on_error"] = "park"
    bench.run()
    assert sorted(delivered(tmp_path / "sink")) == [n for n in range(20) if n != 7]


def test_a_record_that_the_sink_refuses_is_found(bench: WriterBench, tmp_path: Path) -> None:
    bench.options = {"functions": [fn.python(same)], "on_error": "park"}
    set_bad(tmp_path / "sink", 5)
    bench.append("A" * 20)
    assert bench.run().ledger.state.parked == 1
    assert sorted(delivered(tmp_path / "sink")) == [n for n in range(20) if n != 5]


def test_rows_that_come_back_to_the_driver_are_written_once_to_a_database(
    spark: SparkSession, tmp_path: Path
) -> None:
    with tailrace.open(tmp_path / "hub") as hub:
        writer = writers.sql(f"sqlite:///{tmp_path / 'sink.db'}")
        bench = WriterBench(hub, placed(spark, BOTH), writer)
        bench.options = {"functions": [fn.python(same)]}
        bench.append("A" * ROWS)
        bench.run()
        assert bench.run().ledger.state.rows == ROWS
    with sqlite3.connect(tmp_path / "sink.db") as database:
        assert database.execute('SELECT count(*), sum(n) FROM "A"').fetchone() == (
            ROWS,
            ROWS * (ROWS - 1) // 2,
        )


def test_a_spark_sink_waits_while_executors_do_not_share_its_directory(
    spark: SparkSession, tmp_path: Path
) -> None:
    note = "b does not share /data: it has no such directory"
    apart = WorkPlacement(writing=Place.DRIVER, notes=(note,))
    with tailrace.open(tmp_path / "hub") as hub:
        writer = writers.spark("json", {"path": str(tmp_path / "out")})
        bench = WriterBench(hub, placed(spark, apart), writer)
        bench.append("A" * 10)
        run = bench.run()
        assert run.outage is not None
        assert run.outage.reason == note
        assert not (tmp_path / "out").exists()
        bench.driver_of = placed(spark, SENT)
        assert bench.run().ledger.state.state is WriterStatus.STOPPED
    assert spark.read.json(str(tmp_path / "out")).count() == 10


def test_a_writer_waits_for_executors_only_if_it_has_records_to_deliver(
    spark: SparkSession, tmp_path: Path
) -> None:
    with tailrace.open(tmp_path / "hub") as hub:
        driver = SparkDriver(RunSession(lambda: spark), hub, "lake.commits", tmp_path / "spark")
        driver.engine.executors = NoExecutorsYet(
            spark.sparkContext, hub, "lake.commits", tmp_path / "spark"
        )
        bench = WriterBench(hub, lambda *_: driver, RecordingWriter(str(tmp_path / "sink")))
        run = bench.start()
        driver.drive(run, lambda: None, lambda: True)
        assert waited_for(run) is None
        bench.append("A")
        driver.drive(run, lambda: None, lambda: waited_for(run) is not None)
        assert waited_for(run) is WaitsFor.EXECUTORS


def test_explain_names_executors_that_lack_a_directory_until_the_next_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    note = "b cannot read the hub /hub: it has no such directory"
    with tailrace.open(tmp_path / "hub") as hub:
        pipeline = tailrace.Pipeline("lake", CountingReader(10)).write(
            "out", writers.parquet(str(tmp_path / "out")), engine="direct"
        )
        pipeline.run(hub, once=True)
        bench = WriterBench(hub, placed(spark, SENT), writers.parquet(str(tmp_path / "out")))
        run = bench.start()
        run.ledger.store_placement(WorkPlacement(reading=Place.DRIVER, notes=(note,)))
        facts = explain_writer(hub, "lake/out").facts
        assert [fact.what for fact in facts if fact.name == "executors"] == [note]
        assert any("the driver reads the hub" in fact.what for fact in facts)
        assert bench.run().ledger.state.state is WriterStatus.STOPPED
        assert not any(fact.name == "executors" for fact in explain_writer(hub, "lake/out").facts)


def waited_for(run: WriterRun) -> WaitsFor | None:
    """Return what a writer waits for."""
    return None if run.outage is None else run.outage.waits_for


def same(document: dict[str, int]) -> dict[str, int]:
    """A user's function that changes nothing."""
    return document


def without_seven(document: dict[str, int]) -> dict[str, int]:
    """A user's function that fails for one record."""
    if document["n"] == 7:
        raise ValueError("seven")
    return document
