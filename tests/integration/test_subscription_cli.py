"""Workers that `tailrace subscription run` runs in processes: shared, killed and drained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine
from tests.support.waiting import until

pytestmark = pytest.mark.part("subscriptions")

HANDLER = """
from pathlib import Path

def send(order):
    with Path("calls.txt").open("a") as file:
        file.write(f"{order.value}\\n")
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text(HANDLER)
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        hub.create_topic("orders", int, partitions=4)
    cli.run("subscription", "create", "mailer", "--topic", "orders")
    return cli


@contextmanager
def worker(cli: CommandLine, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker in a process."""
    arguments = ("subscription", "run", "mailer", "shop:send", "--id", name)
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace", *arguments],
        env=os.environ | {"TAILRACE_HUB": str(cli.hub)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def shards(cli: CommandLine) -> dict[str, int]:
    """Return the number of shards of each worker."""
    found = cli.json("subscription", "show", "mailer")["workers"]
    return {each["id"].partition(".")[0]: len(each["shards"]) for each in found}


def push(cli: CommandLine, *numbers: int) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        hub.topic("orders", int).push_many([(f"c{number}", number) for number in numbers])


def calls() -> set[int]:
    file = Path("calls.txt")
    return set(map(int, file.read_text().split())) if file.exists() else set()


def test_workers_share_the_shards_and_one_takes_over_from_one_that_is_killed(
    cli: CommandLine,
) -> None:
    with ExitStack() as running:
        first = running.enter_context(worker(cli, "w1"))
        second = running.enter_context(worker(cli, "w2"))
        until(lambda: shards(cli) == {"w1": 2, "w2": 2})
        push(cli, *range(20))
        until(lambda: calls() == set(range(20)))
        first.kill()
        until(lambda: shards(cli) == {"w2": 4})
        push(cli, *range(20, 40))
        until(lambda: calls() == set(range(40)))
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0
    assert cli.json("status")["problems"] == []
    push(cli, 40)
    (problem,) = cli.json("status", status=4)["problems"]
    assert problem["what"] == "UNATTENDED: lag 1, no worker runs"
    history = cli.run("subscription", "history", "mailer").stdout
    assert "granted" in history
