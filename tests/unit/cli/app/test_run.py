"""`tailrace run`: the app that is run, its hub, and what keeps it from starting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine
from tests.support.waiting import in_thread

SHOP = """
import threading
from tailrace import App, Delivery

called = threading.Event()
app, own, empty = App(), App("own"), App()
own.topic("orders", int)

@app.subscription("mailer", topic="orders")
@own.subscription("reminder", topic="orders")
def mail(order: Delivery[int]) -> None:
    called.set()
"""

DISK_THAT_IS_FULL = """
import os, signal
from tailrace import App, Delivery, DiskFull
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.subscription.worker import session

app = App()

def refuse(backend, transaction):
    raise DiskFull("no disk space for the hub")

@app.subscription("mailer", topic="orders")
def mail(order: Delivery[int]) -> None:
    EmbeddedBackend.commit, session.LEAVE_S = refuse, 0.3
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """The command line in a directory with the module `shop_run`, which is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shop_run.py").write_text(SHOP)
    yield CommandLine(tmp_path / "hub")
    sys.modules.pop("shop_run", None)


def stop_after_a_call() -> None:
    """Send this process SIGTERM once the handler of the module was called."""

    def stop() -> None:
        while (shop := sys.modules.get("shop_run")) is None or not hasattr(shop, "mail"):
            threading.Event().wait(0.01)
        assert shop.called.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)

    in_thread(stop)


def push(path: Path) -> None:
    with tailrace.open(path, sync="none") as hub:
        hub.create_topic("orders", int).push(7, key="c7")


def test_an_app_runs_until_a_signal(cli: CommandLine) -> None:
    push(cli.hub)
    stop_after_a_call()
    cli.run("run", "shop_run:app")
    with tailrace.open(cli.hub) as hub:
        assert hub.subscriptions() == ["mailer"]


def test_the_hub_of_the_app_precedes_that_of_the_environment(cli: CommandLine) -> None:
    push(Path("own"))
    stop_after_a_call()
    cli.run("run", "shop_run.py:own", "--only", "reminder")
    assert not cli.hub.exists()


def test_the_hub_of_the_command_line_precedes_that_of_the_app(cli: CommandLine) -> None:
    push(Path("other"))
    stop_after_a_call()
    cli.run("run", "shop_run:own", "--hub", "other")
    assert not Path("own").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["shop_missing:app"], 2, "ConfigError: no module 'shop_missing'"),
        (["shop_run:appp"], 2, "ConfigError: shop_run has no 'appp' · did you mean 'app'?"),
        (["shop_run:called"], 2, "ConfigError: shop_run:called is a Event, not a tailrace.App"),
        (["shop_run:empty"], 2, "InvalidValue: the app declares no queue and no subscription"),
        (
            ["shop_run:app", "--only", "x"],
            2,
            "the app declares no queue or subscription 'x' · valid: mailer",
        ),
        (["shop_run:app", "--drain-timeout", "30"], 2, "InvalidValue: --drain-timeout is '30'"),
        (["shop_run:app", "--processes", "0"], 2, "0 is not in the range x>=1"),
        (["shop_run:app"], 1, "UnknownHub"),
    ],
)
def test_an_app_that_cannot_be_run_is_refused_and_no_hub_is_created(
    cli: CommandLine, arguments: list[str], status: int, problem: str
) -> None:
    assert problem in cli.run("run", *arguments, status=status).stderr
    assert not cli.hub.exists()


def test_a_missing_topic_is_said_with_the_command_for_this_hub(cli: CommandLine) -> None:
    with tailrace.open("data", sync="none"):
        pass
    refused = cli.run("--hub", "data", "run", "shop_run:app", status=1).stderr
    assert "UnknownTopic: no topic 'orders' in data" in refused
    assert "tailrace --hub data topic create orders --partitions 4" in refused


def test_an_error_in_the_module_is_shown_with_its_traceback_alone(cli: CommandLine) -> None:
    Path("shop_run.py").write_text("def f():\n    return 1 / 0\nf()\n")
    refused = cli.run("run", "shop_run:app", status=2).stderr
    assert refused.startswith("Traceback (most recent call last):\n  File ")
    assert 'shop_run.py", line 3, in <module>' in refused.splitlines()[1]
    assert "ConfigError: shop_run cannot be imported: ZeroDivisionError" in refused


def test_outcomes_that_were_not_stored_leave_work(cli: CommandLine) -> None:
    push(cli.hub)
    Path("shop_run.py").write_text(DISK_THAT_IS_FULL)
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "--hub", str(cli.hub), "run", "shop_run:app"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3, done.stderr
    assert "stopped with messages in flight; they will be redelivered" in done.stderr


def test_a_supervisor_loads_nothing_that_only_workers_need() -> None:
    code = """
import sys, tailrace.operations.app.supervisor
print({"numpy", "pyarrow", "apsw"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
