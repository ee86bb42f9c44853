"""A paused attempt while a newer one delivers the same part of a plan."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace import writers
from tailrace.pipeline.engine.driver import DriverOf
from tailrace.pipeline.engine.run_session import RunSession
from tailrace.pipeline.engine.spark_driver import spark_drivers
from tailrace.pipeline.writer import Writer
from tests.support.pipelines.pausing_writer import DyingWriter, PausingWriter
from tests.support.pipelines.writer_bench import WriterBench
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 500

Sink: TypeAlias = "Callable[[Path, tailrace.Hub], list[int]]"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub") as hub:
        hub.create_topic("copies", partitions=1)
        yield hub


def sqlite(directory: Path, _hub: tailrace.Hub) -> list[int]:
    with sqlite3.connect(directory / "sink.db") as database:
        return [n for (n,) in database.execute('SELECT n FROM "A"')]


def files(directory: Path, _hub: tailrace.Hub) -> list[int]:
    table = pyarrow.dataset.dataset(directory / "out", format="parquet").to_table()
    return [int(n) for n in table["n"].to_numpy()]


def topic(_directory: Path, hub: tailrace.Hub) -> list[int]:
    copies = hub.topic("copies")
    batches = copies.batches(0, 0)
    where = tailrace.Partition("copies", 0, 0)
    return [m.value["n"] for batch in batches for m in copies.messages(where, batch)]


def into(sink: Sink, directory: Path) -> Writer:
    """The writer of a sink."""
    made: dict[Sink, Writer] = {
        sqlite: writers.sql(f"sqlite:///{directory / 'sink.db'}"),
        files: writers.parquet(str(directory / "out")),
        topic: writers.topic("copies"),
    }
    return made[sink]


@pytest.mark.parametrize("sink", [sqlite, files, topic])
def test_a_paused_attempt_that_wakes_writes_nothing_twice(
    hub: tailrace.Hub, driver_of: DriverOf, tmp_path: Path, sink: Sink
) -> None:
    bench = WriterBench(hub, driver_of, PausingWriter(into(sink, tmp_path), str(tmp_path)))
    bench.append("A" * ROWS)
    slow = threading.Thread(target=bench.run)
    slow.start()
    try:
        until((tmp_path / "paused").exists)
        assert not bench.run().failed
    finally:
        (tmp_path / "go").touch()
        slow.join()
    assert sorted(sink(tmp_path, hub)) == list(range(ROWS))
    bench.run()
    assert sorted(sink(tmp_path, hub)) == list(range(ROWS))
    assert bench.mark == ROWS


@pytest.mark.parametrize("sink", [sqlite, files, topic])
def test_a_task_that_dies_after_its_write_is_run_again_and_its_rows_count_once(
    hub: tailrace.Hub, spark: SparkSession, tmp_path: Path, sink: Sink
) -> None:
    writer = DyingWriter(into(sink, tmp_path), str(tmp_path))
    bench = WriterBench(hub, spark_drivers(RunSession(lambda: spark)), writer)
    bench.append("A" * ROWS)
    run = bench.run()
    assert not run.failed, run.ledger.state
    assert (tmp_path / "paused").exists()
    assert sorted(sink(tmp_path, hub)) == list(range(ROWS))
    assert run.ledger.state.rows == ROWS
