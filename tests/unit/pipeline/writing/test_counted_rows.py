"""The number of delivered rows, after drivers and attempts that could not report them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import tailrace
from tailrace import functions as fn
from tailrace import writers
from tailrace.pipeline.definition.definition import PipelineDefinition, WriterDefinition
from tailrace.pipeline.engine.direct import DirectEngine
from tailrace.pipeline.engine.driver import DirectDriver, direct_driver
from tailrace.pipeline.writing.attempt import AttemptReport
from tailrace.pipeline.writing.plan_engine import PendingPart, PlanRound
from tailrace.testing import MemoryBackend
from tests.support.pipelines.recording_writer import RecordingWriter
from tests.support.pipelines.writer_bench import WriterBench

ROWS = 100


class DyingEngine(DirectEngine):
    """An engine whose driver dies when the rows are written, before it stores the result."""

    def run(
        self, plan_round: PlanRound, parts: Sequence[PendingPart], stopping: threading.Event
    ) -> list[AttemptReport]:
        super().run(plan_round, parts, stopping)
        raise SystemExit


def dying_driver(
    hub: tailrace.Hub, _pipeline: PipelineDefinition, _writer: WriterDefinition
) -> DirectDriver:
    driver = DirectDriver(hub)
    driver.engine = DyingEngine(hub)
    return driver


def test_rows_count_once_if_the_driver_died_before_it_stored_that_they_are_written(
    tmp_path: Path,
) -> None:
    hub = tailrace.Hub.from_backend(MemoryBackend())
    writer = writers.sql(f"sqlite:///{tmp_path / 'sink.db'}")
    bench = WriterBench(hub, dying_driver, writer, {"batch_rows": 40})
    bench.options["functions"] = [fn.skip("n", "<", 10)]
    bench.append("A" * ROWS)
    for _ in range(3):
        with pytest.raises(SystemExit):
            bench.run()
    bench.driver_of = direct_driver
    assert bench.run().ledger.state.rows == ROWS - 10
    with sqlite3.connect(tmp_path / "sink.db") as database:
        assert database.execute('SELECT count(*) FROM "A"').fetchone() == (ROWS - 10,)


def test_a_refused_record_of_several_rows_counts_none_of_them(tmp_path: Path) -> None:
    hub = tailrace.Hub.from_backend(MemoryBackend())
    bench = WriterBench(hub, direct_driver, RecordingWriter(str(tmp_path), partial=True))
    (tmp_path / "bad").write_text("[3]")
    bench.options["functions"] = [fn.python(twice)]
    bench.append("A" * 10)
    run = bench.run()
    assert run.ledger.state.position == "lake.commits/0.0@3"
    assert run.ledger.state.rows == 18


def twice(document: dict[str, int]) -> list[dict[str, int]]:
    """A user's function that makes two rows of each record."""
    return [document, document]
