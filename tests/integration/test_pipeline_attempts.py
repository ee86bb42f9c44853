"""An attempt that stands still while the same part of a plan is delivered by a newer one."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset
import pytest

import tailrace
from tailrace import writers
from tailrace.pipeline.driving import DriverOf, drive_directly
from tailrace.pipeline.on_spark import drivers_on
from tailrace.pipeline.writer import Writer
from tests.pipelines.bench import Bench
from tests.pipelines.pausing import PausingWriter
from tests.pipelines.waiting import until

pytestmark = pytest.mark.xdist_group("spark")

ROWS = 500


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


@pytest.mark.parametrize("sink", [sqlite, files, topic])
def test_a_paused_attempt_that_wakes_writes_nothing_twice(
    hub: tailrace.Hub,
    driver_of: DriverOf,
    tmp_path: Path,
    sink: Callable[[Path, tailrace.Hub], list[int]],
) -> None:
    inner: dict[object, Writer] = {
        sqlite: writers.sql(f"sqlite:///{tmp_path / 'sink.db'}"),
        files: writers.parquet(str(tmp_path / "out")),
        topic: writers.topic("copies"),
    }
    bench = Bench(hub, driver_of, PausingWriter(inner[sink], str(tmp_path)))
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
