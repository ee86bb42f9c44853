"""An attempt that stands still while the same part of a plan is delivered by a newer one."""

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
from tailrace.pipeline.driving import DriverOf, drive_directly
from tailrace.pipeline.on_spark import drivers_on
from tailrace.pipeline.writer import Writer
from tests.pipelines.bench import Bench
from tests.pipelines.pausing import DyingWriter, PausingWriter
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 500

Sink: TypeAlias = "Callable[[Path, tailrace.Hub], list[int]]"


@pytest.fixture(params=["direct", "spark"])
def driver_of(request: pytest.FixtureRequest) -> DriverOf:
    if request.param == "direct":
        return drive_directly
    return drivers_on(request.getfixturevalue("spark"))


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
    bench = Bench(hub, driver_of, PausingWriter(into(sink, tmp_path), str(tmp_path)))
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
def test_a_task_that_dies_behind_its_write_is_run_again_and_writes_nothing_twice(
    hub: tailrace.Hub, spark: SparkSession, tmp_path: Path, sink: Sink
) -> None:
    writer = DyingWriter(into(sink, tmp_path), str(tmp_path))
    bench = Bench(hub, drivers_on(spark), writer)
    bench.append("A" * ROWS)
    run = bench.run()
    assert not run.failed, run.books.state
    assert (tmp_path / "paused").exists()
    assert sorted(sink(tmp_path, hub)) == list(range(ROWS))
