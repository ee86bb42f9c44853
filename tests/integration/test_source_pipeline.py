"""A pipeline on a source goes on when either of the two tasks dies that read the source."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tailrace
from tailrace import Pipeline, RunOutcome, Source
from tests.support.pipelines.recording_writer import delivered
from tests.support.pipelines.running_pipeline import add
from tests.support.processes import Child, Report
from tests.support.sources.split_reader import SplitReader
from tests.support.topics import all_messages
from tests.support.waiting import DEADLINE_S, until

pytestmark = pytest.mark.timeout(300)

SPLITS = ("a", "b", "c", "d")


def source(directory: Path) -> Source:
    """Return a source whose splits have as many rows as a file says, now and later."""
    return Source("shop", SplitReader(SPLITS, rows_file=str(directory / "rows")))


def read_until_killed(report: Report, directory: Path) -> None:
    """Child: one task. Reports that it reads, and that the other does."""
    with tailrace.open(directory / "hub", sync="none") as hub:
        told = False

        def progress(now: tailrace.SourceProgress) -> None:
            nonlocal told
            if not told and now.tasks == 2 and now.units == 2:
                told = True
                report("shares")

        source(directory).run(hub, progress=progress)


def wait_for(out: Path, rows: int) -> None:
    until(lambda: len(delivered(out)) == rows, f"there are no {rows} rows")


def test_a_pipeline_goes_on_when_either_task_of_its_source_dies(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_text("5")
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        shop = source(tmp_path)
        shop.open_topics(hub, 0)
        lake = Pipeline("lake", shop)
        out = add(lake, tmp_path, "out")
        reports = []
        pipeline = threading.Thread(target=lambda: reports.append(lake.run(hub)))
        pipeline.start()
        tasks = [Child(read_until_killed, tmp_path) for _ in range(2)]
        assert tasks[0].next_report() == "shares"
        for number in range(1, 3):
            assert tasks[1].next_report() == "shares"
            wait_for(out, 20 * number)
            list(tasks.pop(0).kill())
            rows.write_text(str(5 * (number + 1)))
            wait_for(out, 20 * (number + 1))
            tasks.append(Child(read_until_killed, tmp_path))
        assert lake.stop()
        pipeline.join(DEADLINE_S)
        for task in tasks:
            list(task.kill())
        assert delivered(out) == list(range(60))
        assert [report.outcome for report in reports] == [RunOutcome.STOPPED]
        log = all_messages(hub.topic("shop.commits"))
        found = sorted((each.value["s"], each.value["n"]) for each in log)
        assert found == [(split, number) for split in SPLITS for number in range(15)]
