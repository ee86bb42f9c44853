"""Stopping a writer whose query has a delivery under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.clock import SystemClock
from tailrace.pipeline import on_spark
from tailrace.pipeline.defining import writer_definition
from tailrace.pipeline.definition import PipelineDefinition
from tailrace.pipeline.writing import WriterRun
from tailrace.source.reader import Reader
from tests.pipelines.bench import Bench, directory
from tests.pipelines.recording import RecordingWriter, deliveries

pytestmark = pytest.mark.xdist_group("spark")


def test_a_clean_stop_lets_the_query_finish_its_delivery(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = directory(tmp_path / "sink")
    monkeypatch.setattr(on_spark, "PATIENCE_S", 3600.0)  # so that only the query delivers
    with tailrace.open(tmp_path / "hub") as hub:
        writer = RecordingWriter(str(sink), delay_s=1.0)
        bench = Bench(hub, on_spark.drivers_on(spark), writer)
        definition = writer_definition("out", writer, pipeline="lake")
        pipeline = PipelineDefinition(name="lake", reader=Reader(), writers=(definition,))
        driver = bench.driver_of(hub, pipeline, definition)
        run = WriterRun(hub, pipeline, definition, driver.engine, SystemClock())
        run.enrol()
        driving = threading.Thread(
            target=driver.drive, args=(run, lambda: None, run.stopping.is_set)
        )
        driving.start()
        _wait_for(lambda: any(query.lastProgress for query in spark.streams.active))
        bench.append("AAA")
        _wait_for((sink / "begun").exists)
        run.stopping.set()
        driving.join(60)
        assert run.books.state.error is None
        assert deliveries(sink) == [[0, 1, 2]]
        assert bench.mark == 3


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
