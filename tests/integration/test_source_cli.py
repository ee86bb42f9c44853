"""Sources as operators run them: real processes that share one source, and die."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

import tailrace
from tailrace.hub.hub import Hub
from tailrace.operations.source.describe import SourceView, view_source, view_sources
from tests.support.command_line import CommandLine
from tests.support.pipelines.recording_writer import delivered
from tests.support.running_command import RunningCommand
from tests.support.sources.tasks import set_rows
from tests.support.topics import all_values
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
MODULE = """
import os
import tailrace
from tests.support.pipelines.recording_writer import RecordingWriter
from tests.support.sources.split_reader import SplitReader

shop = tailrace.Source("shop", SplitReader(rows_file="rows", delay_s=0.005))
lake = tailrace.Pipeline("lake", shop)
lake.write("crm", RecordingWriter(os.getcwd()), engine="direct")
"""
SPLITS = "abcd"

pytestmark = pytest.mark.part("sources")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory in which the commands run, with 20 rows of each split."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    (tmp_path / "shops.py").write_text(MODULE)
    set_rows(tmp_path, 20)
    return tmp_path


def source_run(directory: Path) -> RunningCommand:
    return RunningCommand(directory, "source", "run", "shops:shop")


def has_tasks(hub: Hub, *units: int) -> bool:
    """True if the running tasks own so many units."""
    return [owned(view) for view in view_sources(hub)] == [sorted(units)]


def owned(view: SourceView) -> list[int]:
    return sorted(task.units for task in view.running)


def has_delivered(directory: Path, rows: int) -> bool:
    return sorted(delivered(directory)) == list(range(rows * len(SPLITS)))


def test_two_runs_share_a_source_and_a_pipeline_on_it_goes_on_when_either_dies(
    directory: Path,
) -> None:
    cli = CommandLine(directory / "hub")
    tailrace.open(cli.hub).close()
    with (
        tailrace.open(cli.hub) as hub,
        source_run(directory) as first,
        source_run(directory) as second,
    ):
        until(lambda: has_tasks(hub, 2, 2), "the units are not shared")
        tasks = {task.process: task.id for task in view_source(hub, "shop").tasks}
        with RunningCommand(directory, "pipeline", "run", "shops:lake") as pipeline:
            until(lambda: has_delivered(directory, 20), "the first rows are missing")
            first.kill()
            set_rows(directory, 40)
            until(lambda: has_delivered(directory, 40), "rows are missing after the kill")
            until(lambda: has_tasks(hub, 4))
            third = source_run(directory)
            with third:
                until(lambda: has_tasks(hub, 2, 2))
                second.terminate()
                assert second.status() == 0, second.output
                set_rows(directory, 60)
                until(lambda: has_delivered(directory, 60), "rows are missing after the stop")
                until(lambda: has_tasks(hub, 4))
                check_history(cli, tasks, first.pid, second.pid)
                (status,) = cli.json("source", "status", "shop")
                assert (status["state"], len(status["source"]["tasks"])) == ("FOLLOWING", 1)
                third.terminate()
                assert third.status() == 0
            pipeline.terminate()
            assert pipeline.status() == 0
        rows = Counter((row["s"], row["n"]) for row in all_values(hub.topic("shop.commits")))
    assert rows == Counter((split, number) for split in SPLITS for number in range(60))
    (status,) = cli.json("source", "status", "shop")
    assert status["state"] == "IDLE"


def check_history(
    cli: CommandLine, tasks: dict[str | None, str], killed: int, stopped: int
) -> None:
    """Check what history tells of a task that was killed, and of one that was stopped."""
    died, left = (
        next(task for process, task in tasks.items() if f"process {pid} " in str(process))
        for pid in (killed, stopped)
    )
    events = cli.json("source", "history", "shop")
    ends = {(each["event"], each["task"]) for each in events}
    assert {("joined", died), ("joined", left), ("died", died), ("left", left)} <= ends
    assert not {("left", died), ("died", left)} & ends
    moves = [(each["before"], each["task"], each["moved"]) for each in events if each["moved"]]
    assert (died, left, 2) in moves
    after = [moved for before, task, moved in moves if before == left and task != died]
    assert sum(after) == 4
    text = cli.run("source", "history", "shop").stdout
    assert f"2 units from {died}: " in text


def test_a_source_whose_only_task_was_killed_is_not_well_until_a_task_reads_again(
    directory: Path,
) -> None:
    cli = CommandLine(directory / "hub")
    tailrace.open(cli.hub).close()
    with tailrace.open(cli.hub) as hub, source_run(directory) as task:
        until(lambda: has_tasks(hub, 4))
        task.kill()
        until(lambda: not view_source(hub, "shop").running)
    assert "source shop  no task runs, that of " in cli.run("status", status=4).stdout
    assert cli.run("explain", "shop").stdout.startswith("KILLED: source shop: ")
    (status,) = cli.json("source", "status")
    assert [task["process"] for task in status["source"]["tasks"]] == [None]
    with RunningCommand(directory, "source", "run", "shops:shop", "--once", "-o", "json") as once:
        assert once.status() == 0, once.output
    assert json.loads(once.output.splitlines()[-1])["outcome"] == "done"
    assert cli.run("status").stdout.startswith("well: ")


def test_a_second_signal_stops_a_task_at_once_with_status_3(directory: Path) -> None:
    (directory / "shops.py").write_text(MODULE.replace("delay_s=0.005", "delay_s=600"))
    cli = CommandLine(directory / "hub")
    tailrace.open(cli.hub).close()
    with tailrace.open(cli.hub) as hub, source_run(directory) as task:
        until(lambda: has_tasks(hub, 4))
        task.terminate()
        task.interrupt()
        assert task.status() == 3
        assert "stopped at once; what was read and not stored will be read again" in task.output
