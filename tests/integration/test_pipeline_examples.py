"""The documented examples of redelivery and failure, on both engines over one ledger."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace
from tailrace import functions as fn
from tailrace import writers
from tailrace.pipeline.engine.run_session import RunSession
from tailrace.pipeline.engine.spark_driver import spark_drivers
from tailrace.pipeline.writer import FrameWriter
from tailrace.pipeline.writer_status import WriterStatus
from tests.support.pipelines.recording_writer import RecordingWriter, delivered, deliveries, set_bad
from tests.support.pipelines.writer_bench import WriterBench
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    return tmp_path / "sink"


@pytest.mark.parametrize(("acknowledged", "again"), [(12, [13, 14, 15]), (13, [14, 15])])
def test_records_after_the_last_acknowledged_offset_are_redelivered(
    bench: WriterBench, sink: Path, acknowledged: int, again: list[int]
) -> None:
    bench.append("AABBAABBCACBAACB")
    bench.acknowledge(*range(acknowledged + 1))
    bench.run()
    assert deliveries(sink) == [again]
    assert bench.mark == 16


def test_a_failed_batch_is_redelivered_one_at_a_time_and_stops_where_it_fails(
    bench: WriterBench, sink: Path
) -> None:
    bench.append("A" * 16)
    bench.acknowledge(*range(9))
    set_bad(sink, 14)
    assert bench.run().failed
    assert deliveries(sink) == []
    assert (bench.mark, bench.state) == (9, WriterStatus.FAILED)

    assert bench.run().failed
    assert deliveries(sink) == [[9], [10], [11], [12], [13]]
    assert bench.mark - 1 == 13

    set_bad(sink)
    assert not bench.run().failed
    assert deliveries(sink)[5:] == [[14], [15]]
    bench.append("AA")
    bench.run()
    assert deliveries(sink)[7:] == [[16, 17]]


def test_a_hole_between_acknowledged_records_is_redelivered(bench: WriterBench, sink: Path) -> None:
    bench.append("AABBAABBCACBAACBA" + "AABBAABBCAC")
    bench.acknowledge(*range(24), 25, 26, 27)
    bench.run()
    assert deliveries(sink) == [[24]]


def test_acknowledged_records_between_two_holes_are_not_redelivered(
    bench: WriterBench, sink: Path
) -> None:
    bench.append("A" * 28)
    bench.acknowledge(*range(24), 25, 27)
    bench.run()
    assert deliveries(sink) == [[24, 26]]
    assert bench.mark == 28


def test_a_stop_between_two_batches_of_a_plan_acknowledges_only_what_was_written(
    bench: WriterBench, sink: Path
) -> None:
    for _ in range(6):
        bench.append("A", padding_bytes=600 << 10)
    bench.writer = RecordingWriter(str(sink), delay_s=1.0)
    run = bench.start()
    draining = threading.Thread(target=run.drain)
    draining.start()
    until((sink / "begun").exists)
    run.stopping.set()
    draining.join()
    run.end()
    assert 0 < len(delivered(sink)) < 6
    assert bench.mark == len(delivered(sink))
    bench.writer = RecordingWriter(str(sink))
    bench.run()
    assert delivered(sink) == list(range(6))


def test_a_function_that_drops_the_last_half_still_reaches_the_end(
    bench: WriterBench, sink: Path
) -> None:
    bench.append("A" * 10_000)
    bench.options = {"functions": [fn.python(_only_the_first_half)]}
    bench.run()
    assert sorted(offset for call in deliveries(sink) for offset in call) == list(range(5000))
    assert bench.mark == 10_000


def _only_the_first_half(document: dict[str, Any]) -> dict[str, Any] | None:
    return document if document["n"] < 5000 else None


def test_a_sink_of_sparks_own_gets_the_rows_through_functions_in_sql(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "csv"
    with tailrace.open(tmp_path / "hub") as hub:
        writer = writers.spark("csv", {"path": str(path)}, schema="n BIGINT, double BIGINT")
        bench = WriterBench(hub, spark_drivers(RunSession(lambda: spark)), writer)
        bench.append("A" * 100)
        bench.options = {
            "functions": [
                fn.sql("n, 2 * n AS double", "n >= 90", schema="n BIGINT"),
                fn.python(_but_not_95),
                fn.sql("*", "double < 198", schema="n BIGINT, double BIGINT"),
            ]
        }
        assert not bench.run().failed
        assert bench.mark == 100
    found = sorted(tuple(map(int, row)) for row in _rows_of(path))
    assert found == [(n, 2 * n) for n in range(90, 99) if n != 95]


def _but_not_95(document: dict[str, Any]) -> dict[str, Any] | None:
    return document if document["n"] != 95 else None


def _rows_of(path: Path) -> list[list[str]]:
    lines = [line for file in path.glob("*.csv") for line in file.read_text().splitlines()]
    return [line.split(",")[:2] for line in lines]


def test_records_that_sql_handles_are_resumed_one_at_a_time_too(
    spark: SparkSession, tmp_path: Path, sink: Path
) -> None:
    sink.mkdir()
    with tailrace.open(tmp_path / "hub") as hub:
        bench = WriterBench(
            hub, spark_drivers(RunSession(lambda: spark)), RecordingWriter(str(sink))
        )
        bench.append("A" * 6)
        bench.options = {"functions": [fn.sql("n", "n <> 2", schema="n BIGINT")]}
        set_bad(sink, 4)
        bench.run()
        state = bench.run().ledger.state
        assert state.position == "lake.commits/0.0@4", state
        assert deliveries(sink) == [[0], [1], [3]]
        set_bad(sink)
        bench.run()
        assert deliveries(sink)[3:] == [[4], [5]]
        assert bench.mark == 6


class SavedFrames(FrameWriter, frozen=True):
    """Records the offsets of each save in a file, and refuses a save with offset 3."""

    path: str

    def check(self) -> str:
        """Pass."""
        return "a file"

    def save(self, rows: DataFrame) -> None:
        """Record the offsets."""
        offsets = sorted(row["offset"] for row in rows.select("offset").collect())
        if 3 in offsets:
            raise ValueError(f"offset 3 is in {offsets}")
        with open(self.path, "a") as file:
            file.write(json.dumps(offsets) + "\n")

    def saved(self) -> list[list[int]]:
        """Return the offsets of all saves."""
        return [json.loads(line) for line in Path(self.path).read_text().splitlines()]


WITH_SQL = {"functions": [fn.sql("*", where="n >= 0", schema="n BIGINT")]}


@pytest.mark.parametrize("options", [{}, WITH_SQL], ids=["", "sql"])
def test_a_sink_of_spark_gets_each_record_once_after_one_was_parked(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    writer = SavedFrames(str(tmp_path / "saved"))
    with tailrace.open(tmp_path / "hub") as hub:
        drivers = spark_drivers(RunSession(lambda: spark))
        bench = WriterBench(hub, drivers, writer, {"on_error": "park", **options})
        bench.append("A" * 8)
        assert bench.run().failed
        bench.retry_one_at_a_time()
        bench.run()
        assert writer.saved() == [[0], [1], [2], [4], [5], [6], [7]]
        assert [letter.data for letter in bench.dead_letters()] == [b'{"n":3}']
        assert bench.mark == 8
        bench.append("A" * 5)
        assert bench.run().ledger.state.rows == 7 + 5


def test_a_record_that_a_function_before_sql_refuses_is_parked_alone(
    spark: SparkSession, tmp_path: Path, sink: Path
) -> None:
    sink.mkdir()
    with tailrace.open(tmp_path / "hub") as hub:
        bench = WriterBench(
            hub, spark_drivers(RunSession(lambda: spark)), RecordingWriter(str(sink))
        )
        bench.append("A" * 6)
        functions = [fn.python(_fails_at_two), fn.sql("n", "n <> 4", schema="n BIGINT")]
        bench.options = {"functions": functions, "on_error": "park"}
        assert not bench.run().failed
        assert sorted(offset for call in deliveries(sink) for offset in call) == [0, 1, 3, 5]
        assert [letter.data for letter in bench.dead_letters()] == [b'{"n":2}']
        assert bench.mark == 6


def _fails_at_two(document: dict[str, Any]) -> dict[str, Any]:
    if document["n"] == 2:
        raise ValueError("two")
    return document
