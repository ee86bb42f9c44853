"""The progress of a run before its writers start."""

from __future__ import annotations

from pathlib import Path

import tailrace
from tailrace.operations.pipeline.describe import view_pipelines
from tailrace.pipeline.monitor import RunMonitor
from tailrace.source.reader import Until
from tests.support.pipelines.lake import Lake
from tests.support.pipelines.recording_writer import RecordingWriter


def test_a_run_reports_that_it_waits_for_spark_before_it_has_writers(tmp_path: Path) -> None:
    lake = Lake(tailrace.open(tmp_path / "hub"), tmp_path)
    pipeline = lake.pipeline()
    by_hand = pipeline.prepare(lake.hub, until=Until.NOW)
    assert RunMonitor(by_hand).progress().starting == "the writers"
    pipeline.write("big", RecordingWriter(str(lake.sink())), engine="spark")
    on_spark = pipeline.prepare(lake.hub, until=Until.NOW)
    assert RunMonitor(on_spark).progress().starting == "Spark"
    by_hand.run()
    assert RunMonitor(by_hand).progress().starting is None


def test_a_writer_that_does_not_wait_waits_for_nothing(tmp_path: Path) -> None:
    lake = Lake(tailrace.open(tmp_path / "hub"), tmp_path)
    run = lake.pipeline().prepare(lake.hub, until=Until.NOW)
    run.run()
    assert {writer.waits_for for writer in RunMonitor(run).progress().writers} == {None}
    (view,) = view_pipelines(lake.hub)
    assert {writer.waits_for for writer in view.writers} == {None}
