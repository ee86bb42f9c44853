"""A writer driven by a query: a clean stop, and the next start."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.clock import SystemClock
from tailrace.operations.pipeline.interventions import ack
from tailrace.operations.pipeline.rewind import rewind
from tailrace.pipeline.catalog import register
from tailrace.pipeline.definition.checks import writer_definition
from tailrace.pipeline.definition.definition import PipelineDefinition
from tailrace.pipeline.engine import spark_driver
from tailrace.pipeline.engine.run_session import RunSession
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.writer_run import WriterRun
from tailrace.source.reader import Reader
from tests.support.counts import soaking
from tests.support.pipelines.recording_writer import RecordingWriter, deliveries, set_bad
from tests.support.pipelines.writer_bench import WriterBench, directory
from tests.support.waiting import DEADLINE_S, until

pytestmark = pytest.mark.xdist_group("spark")

INTERVENTION_S = 2.0 if soaking() else DEADLINE_S
"""How soon a running writer heeds an operator. Only the soak has the machine for itself."""


class Driven:
    """The writer of the bench, driven in its own thread."""

    def __init__(self, bench: WriterBench) -> None:
        definition = writer_definition("out", bench.writer, pipeline="lake")
        pipeline = PipelineDefinition(name="lake", reader=Reader(), writers=(definition,))
        register(bench.hub.backend.store, pipeline)
        driver = bench.driver_of(bench.hub, pipeline, definition)
        self.run = run = WriterRun(bench.hub, pipeline, definition, driver.engine, SystemClock())
        run.register()
        self._thread = threading.Thread(
            target=driver.drive, args=(run, lambda: None, run.stopping.is_set)
        )
        self._thread.start()

    def stop(self) -> None:
        self.run.stopping.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def named(spark: SparkSession, name: str) -> bool:
    """True if a query of this name has made progress."""
    return any(query.name == name and query.lastProgress for query in spark.streams.active)


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterBench]:
    """A writer that was stopped while its query delivered the first three records."""
    path = tmp_path_factory.mktemp("stopped")
    sink = directory(path / "sink")
    with tailrace.open(path / "hub") as hub, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_driver, "QUERY_TIMEOUT_S", 3600.0)  # so that only the query delivers
        bench = WriterBench(
            hub,
            spark_driver.spark_drivers(RunSession(lambda: spark)),
            RecordingWriter(str(sink), delay_s=1.0),
        )
        driven = Driven(bench)
        try:
            until(lambda: named(spark, "lake/out"), "no query has the name of the writer")
            bench.append("AAA")
            until((sink / "begun").exists)
        finally:
            driven.stop()
        yield bench


@pytest.fixture
def sink(stopped: WriterBench) -> Path:
    assert isinstance(stopped.writer, RecordingWriter)
    return Path(stopped.writer.path)


def test_a_clean_stop_lets_the_query_finish_its_delivery(stopped: WriterBench, sink: Path) -> None:
    assert deliveries(sink)[:1] == [[0, 1, 2]]
    assert stopped.mark >= 3
    assert stopped.state is WriterStatus.STOPPED


@pytest.mark.part("pipelines")
def test_unacknowledged_records_are_delivered_without_new_ones_and_an_ack_lets_the_writer_continue(
    stopped: WriterBench, sink: Path
) -> None:
    rewind(stopped.hub, "lake/out", "0")  # The checkpoint is ahead now.
    before = len(deliveries(sink))
    set_bad(sink, 1)
    stopped.writer = RecordingWriter(str(sink), partial=True)
    driven = Driven(stopped)
    try:
        until(lambda: driven.run.failed)
        assert deliveries(sink)[before:] == [[0, 2]]
        stopped.append("A")
        ack(stopped.hub, "lake/out", "1", "a test")
        assert until(lambda: not driven.run.failed) < INTERVENTION_S
        until(lambda: stopped.mark == 4)
        assert deliveries(sink)[before:] == [[0, 2], [3]]
    finally:
        driven.stop()
