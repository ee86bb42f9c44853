"""A staged file that was deleted before it was published: the commands that `explain` shows."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import tailrace
from tailrace import writers
from tailrace.operations.explanation import Remedy
from tailrace.operations.pipeline.explain_writer import explain_writer
from tailrace.operations.pipeline.interventions import retry
from tailrace.operations.pipeline.rewind import plan_rewind, rewind
from tailrace.pipeline.definition.definition import PipelineDefinition, WriterDefinition
from tailrace.pipeline.engine.direct import DirectEngine
from tailrace.pipeline.engine.driver import DirectDriver
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.writing.attempt import AttemptReport
from tailrace.pipeline.writing.plan_engine import PendingPart, PlanRound
from tailrace.source.reader import Until
from tailrace.testing import MemoryBackend
from tests.support.pipelines.counting_reader import CountingReader

ROWS = 200


class LosingEngine(DirectEngine):
    """An engine after whose work someone moves the last staged file of each plan away."""

    sink: Path

    def run(
        self, plan_round: PlanRound, parts: Sequence[PendingPart], stopping: threading.Event
    ) -> list[AttemptReport]:
        reports = super().run(plan_round, parts, stopping)
        lost = sorted((self.sink / "_tailrace").rglob("*.staged"))[-1]
        lost.rename(self.sink.parent / "lost")
        (self.sink.parent / "path").write_text(str(lost))
        return reports


class Lake:
    """A pipeline of two partitions and two namespaces into files."""

    def __init__(self, directory: Path) -> None:
        self.sink = directory / "out"
        self.hub = tailrace.Hub.from_backend(MemoryBackend())
        reader = CountingReader(ROWS, namespaces=("a", "b"), batch=10)
        self._pipeline = tailrace.Pipeline("lake", reader, partitions=2)
        self._pipeline.write("out", writers.file(str(self.sink)), engine="direct", batch_rows=60)

    def run(self) -> RunOutcome:
        run = self._pipeline.prepare(self.hub, until=Until.NOW)
        return run.run()

    def run_and_lose(self) -> RunOutcome:
        return PipelineRun(
            self.hub, self._pipeline.definition, until=Until.NOW, driver_of=self._losing
        ).run()

    def _losing(
        self, hub: tailrace.Hub, _pipeline: PipelineDefinition, _writer: WriterDefinition
    ) -> DirectDriver:
        driver = DirectDriver(hub)
        driver.engine = engine = LosingEngine(hub)
        engine.sink = self.sink
        return driver

    def remedies(self) -> dict[str, Remedy]:
        return {each.name: each for each in explain_writer(self.hub, "lake/out").remedies}

    def error(self) -> str:
        facts = {each.name: each.what for each in explain_writer(self.hub, "lake/out").facts}
        return facts["error"]

    def numbers(self) -> list[int]:
        files = self.sink.glob("[ab]/*.jsonl")
        return sorted(json.loads(row)["n"] for each in files for row in each.open())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    assert made.run_and_lose() is RunOutcome.FAILED
    assert made.run() is RunOutcome.FAILED  # Another start does not help.
    return made


def test_the_rewind_that_explain_shows_writes_the_records_again_each_once(lake: Lake) -> None:
    assert "or rewind the writer, which writes the records of the file again" in lake.error()
    *_, name, offset = lake.remedies()["rewind"].command.split()
    assert (name, plan_rewind(lake.hub, name, offset).changes) == ("lake/out", True)
    rewind(lake.hub, name, offset)
    assert lake.run() is RunOutcome.DONE
    assert lake.numbers() == list(range(ROWS))


def test_the_retry_that_explain_shows_works_once_the_file_is_back(
    lake: Lake, tmp_path: Path
) -> None:
    assert lake.remedies()["retry"].outcome == "after you moved the file back"
    (tmp_path / "lost").rename((tmp_path / "path").read_text())
    retry(lake.hub, "lake/out")
    assert lake.run() is RunOutcome.DONE
    assert lake.numbers() == list(range(ROWS))
