"""Pipelines: a transform into Parquet compared with Spark's own, and delivery one at a time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import parquet

import tailrace
from bench.measure import OURS, Scale, Timer, take_turns
from bench.report import Goal, Row, against, figures_of
from tailrace import functions as fn
from tailrace import writers
from tailrace.clock import SystemClock
from tailrace.pipeline.definition.checks import writer_definition
from tailrace.pipeline.definition.definition import PipelineDefinition
from tailrace.pipeline.engine.driver import DriverOf, direct_driver
from tailrace.pipeline.writer import Writer
from tailrace.pipeline.writing.plan import PlanKind, PlanPart, WritePlan
from tailrace.pipeline.writing.writer_run import WriterRun
from tailrace.source.reader import Reader
from tailrace.topic.internal_topics import open_internal_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARQUET = "Spark's Parquet source"
BATCH = 10_000
SINGLES = 5_000
SINGLES_GOAL = 1_000

TRANSFORM_REASON = "two fifths of the writer's time is parsing JSON; Parquet holds columns"
SINGLES_REASON = "a transaction of SQLite for each record"


def rows(scale: Scale) -> list[Row]:
    """Measure pipelines."""
    from tailrace.spark.session import start

    with tempfile.TemporaryDirectory(prefix="tailrace-bench-pipeline-") as directory:
        spark = start("tailrace-bench", master="local[2]", log_file=Path(directory, "spark.log"))
        try:
            return [_transform(spark, scale), _singles(scale)]
        finally:
            spark.stop()


def _transform(spark: SparkSession, scale: Scale) -> Row:
    work = "pipeline on Spark: a filter and two functions, into Parquet"
    turns = _Transform(spark, 2 * scale.count(30))
    rates = take_turns(work, {OURS: turns.ours, PARQUET: turns.parquet}, scale.rounds)
    goals = (against(rates, PARQUET, 0.7, reason=TRANSFORM_REASON),)
    return Row(work, figures_of(rates, "rows"), goals)


class _Transform:
    """The turns: each stores the same documents first, then filters, drops a field, renames one."""

    def __init__(self, spark: SparkSession, batches: int) -> None:
        self._spark = spark
        self._batches = batches

    def ours(self, directory: Path, timer: Timer) -> int:
        from tailrace.pipeline.engine.run_session import RunSession
        from tailrace.pipeline.engine.spark_driver import spark_drivers

        functions = [fn.skip("total", "<", 100), fn.omit("card"), fn.rename({"id": "number"})]
        writer = writers.parquet(str(directory / "out"))
        with tailrace.open(directory / "hub", sync="none") as hub:
            _fill(hub, self._batches)
            options = {"functions": functions, "batch_rows": self._batches * BATCH}
            run = _run(hub, spark_drivers(RunSession(lambda: self._spark)), writer, options)
            with timer.running():
                run.drain()
        return self._batches * BATCH

    def parquet(self, directory: Path, timer: Timer) -> int:
        table = pa.Table.from_pylist([_document(number) for number in range(BATCH)])
        (directory / "in").mkdir()
        for half in range(2):
            rows = pa.concat_tables([table] * (self._batches // 2))
            parquet.write_table(rows, directory / "in" / f"{half}.parquet")
        frame = self._spark.read.parquet(str(directory / "in"))
        with timer.running():
            kept = frame.where("total >= 100").drop("card").withColumnRenamed("id", "number")
            kept.write.parquet(str(directory / "out"))
        return self._batches * BATCH


def _singles(scale: Scale) -> Row:
    work = "records delivered one at a time into SQLite"
    rates = take_turns(work, {OURS: _one_at_a_time}, scale.rounds)
    rate = rates.median(OURS)
    goal = Goal("records a second", rate, SINGLES_GOAL, unit="/s", reason=SINGLES_REASON)
    return Row(work, figures_of(rates, "records"), (goal,))


def _one_at_a_time(directory: Path, timer: Timer) -> int:
    with tailrace.open(directory / "hub") as hub:
        _fill(hub, 1)
        run = _run(hub, direct_driver, writers.sql(f"sqlite:///{directory / 'sink.db'}"), {})
        part = PlanPart("lake.commits/0.0", 0, SINGLES)
        run.ledger.commit(plan=WritePlan("single", PlanKind.SINGLE, (part,)))
        ends = {part.where: SINGLES}
        with timer.running():
            run.drain(ends)
    return SINGLES


def _run(
    hub: tailrace.Hub, driver_of: DriverOf, writer: Writer, options: dict[str, Any]
) -> WriterRun:
    """Return a started writer over the commit log."""
    definition = writer_definition("out", writer, pipeline="lake", **options)
    pipeline = PipelineDefinition(name="lake", reader=Reader(), writers=(definition,))
    engine = driver_of(hub, pipeline, definition).engine
    run = WriterRun(hub, pipeline, definition, engine, SystemClock())
    run.register()
    run.begin()
    return run


def _fill(hub: tailrace.Hub, batches: int) -> None:
    for name in ("lake.commits", "lake.dead-letters"):
        open_internal_topic(hub.backend, name, 0)
    topic = hub.topic("lake.commits")
    values = [msgspec.json.encode(_document(number)) for number in range(BATCH)]
    batch = pa.RecordBatch.from_pydict({"key": [b"orders"] * BATCH, "value": values})
    for _ in range(batches):
        topic.append(batch)


def _document(number: int) -> dict[str, object]:
    return {
        "id": number,
        "customer": f"c{number % 977}",
        "total": number % 1000 + 0.5,
        "card": f"4111-{number:08}",
        "city": "Köln",
        "paid": number % 3 == 0,
    }
