"""Pipelines as operators run them: real processes, signals, and interventions while they run."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.hub.hub import Hub
from tailrace.operations.audit import read_audit
from tailrace.operations.pipeline.describe import WriterView, view_pipelines
from tailrace.operations.pipeline.lookup import find_writer, read_ledger
from tailrace.pipeline.writer_status import WriterStatus
from tests.support.counts import soaking
from tests.support.pipelines.recording_writer import deliveries, set_bad
from tests.support.waiting import DEADLINE_S, until

ROOT = Path(__file__).parents[2]
TAILRACE = [sys.executable, "-m", "tailrace"]
SECONDS_MAX = 60
INTERVENTION_S = 2.0 if soaking() else DEADLINE_S
"""How soon a running writer heeds an operator. Only the soak has the machine for itself."""
MODULE = """
import os
import tailrace
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import RecordingWriter

lake = tailrace.Pipeline(
    "lake", CountingReader(rows_file="rows"), stop_timeout=os.environ["STOP_TIMEOUT"]
)
sink = RecordingWriter(os.getcwd(), delay_s=float(os.environ["DELAY_S"]))
lake.write("crm", sink, engine="direct")
"""


class Lake:
    """The pipeline ``lake`` of a directory, run by child processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hub_path = directory / "hub"
        self.children: list[subprocess.Popen[bytes]] = []
        (directory / "lakes.py").write_text(MODULE)
        (directory / "rows").write_text("16")

    def start(
        self,
        *args: str,
        delay_s: float = 0.0,
        stop_timeout: str = "30s",
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start `tailrace pipeline run` of the pipeline."""
        child = subprocess.Popen(
            [*TAILRACE, "pipeline", "run", "lakes:lake", *args],
            cwd=self.directory,
            env=self.environment(DELAY_S=str(delay_s), STOP_TIMEOUT=stop_timeout),
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        self.children.append(child)
        return child

    def run(self, *args: str, status: int = 0) -> str:
        """Run another command, and return its output."""
        done = subprocess.run(
            [*TAILRACE, *args],
            cwd=self.directory,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        return os.environ | {"TAILRACE_HUB": str(self.hub_path), "PYTHONPATH": path} | more

    @property
    def given(self) -> list[int]:
        return [offset for call in deliveries(self.directory) for offset in call]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    for child in lake.children:
        child.kill()
        child.wait()


def ended(child: subprocess.Popen[bytes]) -> tuple[int, dict[str, Any], str]:
    """Return exit status, report and log of a run."""
    out, error = child.communicate(timeout=SECONDS_MAX)
    report = json.loads(out) if out.startswith(b"{") else {}
    return child.returncode, report, error.decode()


def writer(hub: Hub) -> WriterView | None:
    views = view_pipelines(hub)
    return views[0].writers[0] if views and views[0].writers else None


def is_in(hub: Hub, state: WriterStatus) -> bool:
    found = writer(hub)
    return found is not None and found.state is state


def has_all(hub: Hub) -> bool:
    found = writer(hub)
    return found is not None and found.lag == 0 and found.rows > 0


def has_a_plan(hub: Hub) -> bool:
    if not is_in(hub, WriterStatus.RUNNING):
        return False
    name = find_writer(hub, "lake/crm").name
    return read_ledger(hub, name, hub.topic("lake.commits")).plan is not None


@pytest.mark.part("pipelines")
def test_an_ack_lets_a_running_writer_continue_and_is_audited(
    lake: Lake,
) -> None:
    set_bad(lake.directory, 14)
    child = lake.start("-o", "json")
    with tailrace.open(lake.hub_path) as hub:
        until(lambda: is_in(hub, WriterStatus.FAILED))
        error = lake.run("pipeline", "ack", "lake/crm", "14", "--reason", "a test order")
        assert f"now, by process {child.pid}" in error
        assert until(lambda: has_all(hub)) < INTERVENTION_S
        (entry,) = read_audit(hub, "lake/crm", 20)
        assert (entry.command, entry.reason) == ("pipeline ack", "a test order")
    assert lake.given == [*range(14), 15]
    child.terminate()
    status, report, _ = ended(child)
    assert (status, report["outcome"]) == (0, "stopped")


def test_a_refused_ack_changes_nothing_and_the_writer_stays_failed(lake: Lake) -> None:
    set_bad(lake.directory, 14)
    child = lake.start()
    with tailrace.open(lake.hub_path) as hub:
        until(lambda: is_in(hub, WriterStatus.FAILED))
        before = writer(hub)
        assert "0 to 15" in lake.run("pipeline", "ack", "lake/crm", "16", "--reason", "x", status=2)
        lake.run("pipeline", "ack", "lake/crm", "14", status=2)
        assert "runs: process" in lake.run("pipeline", "forget", "lake/crm", "--yes", status=1)
        assert writer(hub) == before
        assert read_audit(hub, None, 20) == []
    child.terminate()
    assert ended(child)[0] == 1


@pytest.mark.part("pipelines")
def test_a_retry_lets_a_running_writer_continue(lake: Lake) -> None:
    set_bad(lake.directory, 14)
    child = lake.start("-o", "json")
    with tailrace.open(lake.hub_path) as hub:
        until(lambda: is_in(hub, WriterStatus.FAILED))
        set_bad(lake.directory)
        lake.run("pipeline", "retry", "lake/crm", "--one-at-a-time")
        assert until(lambda: has_all(hub)) < INTERVENTION_S
        assert lake.given == list(range(16))
        lake.run("pipeline", "rewind", "lake/crm", "9", "--yes")
        assert until(lambda: len(lake.given) == 16 + 7) < INTERVENTION_S
        assert lake.given[16:] == list(range(9, 16))
        lake.run("status")
    child.send_signal(signal.SIGINT)
    assert ended(child)[0] == 0


def test_sigterm_lets_a_slow_writer_finish_its_batch(lake: Lake) -> None:
    child = lake.start("-o", "json", delay_s=1.5)
    with tailrace.open(lake.hub_path) as hub:
        until(lambda: has_a_plan(hub))
        child.terminate()
        status, report, error = ended(child)
        assert (status, report["outcome"]) == (0, "stopped")
        assert "stopping within 30 s" in error
        assert lake.given == list(range(16))
        assert is_in(hub, WriterStatus.STOPPED)
        assert has_all(hub)


def test_after_the_stop_timeout_the_status_is_3_and_all_is_redelivered(lake: Lake) -> None:
    child = lake.start("-o", "json", delay_s=50.0, stop_timeout="300ms")
    with tailrace.open(lake.hub_path) as hub:
        until(lambda: has_a_plan(hub))
        started = time.monotonic()
        child.terminate()
        status, report, _ = ended(child)
        assert time.monotonic() - started < 40  # less than the delay
        assert (status, report["outcome"]) == (3, "unfinished")
        assert report["writers"][0]["lag"] == 16
        assert lake.given == []
    status, report, _ = ended(lake.start("--once", "-o", "json"))
    assert (status, report["outcome"]) == (0, "done")
    assert lake.given == list(range(16))


def test_a_run_stopped_while_its_writer_waits_for_the_sink_ends_with_status_3(lake: Lake) -> None:
    (lake.directory / "down").touch()
    child = lake.start("--once", "-o", "json")
    with tailrace.open(lake.hub_path) as hub:
        until(lambda: is_in(hub, WriterStatus.WAITING))
        shown = lake.run("pipeline", "status", "lake")
        assert "waiting" in shown
        assert "next try" in shown
        assert "the sink is down  tailrace explain lake/crm" in shown
        assert "WAITING since" in lake.run("explain", "lake/crm")
        assert "WAITING since" in lake.run("status")
        child.terminate()
        status, report, _ = ended(child)
    assert (status, report["outcome"]) == (3, "waiting")
    assert "lake/crm waits for its sink" in report["outages"][0]
    (lake.directory / "down").unlink()
    assert ended(lake.start("--once"))[0] == 0
    assert lake.given == list(range(16))


def test_a_run_once_ends_with_status_1_if_its_sink_does_not_come_back(lake: Lake) -> None:
    (lake.directory / "down").touch()
    status, report, _ = ended(lake.start("--once", "--wait", "200ms", "-o", "json"))
    assert (status, report["outcome"]) == (1, "failed")
    assert "did not come back in time" in report["failures"][0]
    status, _, error = ended(lake.start("--wait=soon"))
    assert (status, "--wait is 'soon'" in error) == (2, True)


def test_the_second_signal_ends_a_run_at_once(lake: Lake) -> None:
    child = lake.start(delay_s=50.0)
    with tailrace.open(lake.hub_path) as hub:
        until(lambda: has_a_plan(hub))
    child.terminate()
    assert child.stderr is not None
    assert any(b"stopping" in line for line in child.stderr)
    child.send_signal(signal.SIGINT)
    status, _, error = ended(child)
    assert status == 3
    assert "will be delivered again" in error


def test_a_run_that_was_killed_is_not_well_until_the_next_one(lake: Lake) -> None:
    child = lake.start()
    with tailrace.open(lake.hub_path) as hub:
        until(lambda: has_all(hub))
    assert lake.run("status").startswith("well: ")
    child.kill()
    child.wait(SECONDS_MAX)
    assert "was killed, its reader has not finished" in lake.run("status", status=4)
    assert ended(lake.start("--once"))[0] == 0
    assert lake.run("status").startswith("well: ")


def test_a_second_run_is_refused_with_the_pid_of_the_first_which_continues(lake: Lake) -> None:
    first = lake.start()
    with tailrace.open(lake.hub_path) as hub:
        until(lambda: has_all(hub))
        status, _, error = ended(lake.start())
        assert status == 1
        assert error.startswith("Busy: ")
        assert f"process {first.pid} " in error
        (lake.directory / "rows").write_text("20")
        until(lambda: len(lake.given) == 20)
    first.terminate()
    assert ended(first)[0] == 0


def test_a_run_once_with_a_writer_that_failed_ends_with_status_1(lake: Lake) -> None:
    set_bad(lake.directory, 14)
    status, report, _ = ended(lake.start("--once", "-o", "json"))
    assert (status, report["outcome"]) == (1, "failed")
    assert "refused because of 14" in report["failures"][0]
    assert "FAILED" in lake.run("status", status=4)


def test_on_a_terminal_progress_is_drawn_for_each_writer(lake: Lake) -> None:
    ours, theirs = pty.openpty()
    child = lake.start(stderr=theirs)
    os.close(theirs)
    drawn = b""
    while b"lake/crm" not in drawn:
        drawn += os.read(ours, 4096)
    child.terminate()
    assert child.wait(SECONDS_MAX) == 0
    os.close(ours)
    assert b"rows read" in drawn
    assert b"rows/s" in drawn
    assert child.stdout is not None
    assert b"lake STOPPED after" in child.stdout.read()
