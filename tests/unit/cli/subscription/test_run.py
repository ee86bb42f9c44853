"""`tailrace subscription run`: a worker in the process of the command, until it is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine

SHOP = """
import os, signal, time
from pathlib import Path

import msgspec
import tailrace

class Order(msgspec.Struct):
    id: int

def stop():
    os.kill(os.getpid(), signal.SIGTERM)

def send(order: tailrace.Delivery[Order]) -> None:
    if order.value.id == 2:
        stop()

async def send_later(order: tailrace.Delivery[Order]) -> None:
    send(order)

def reject(order):
    stop()
    raise tailrace.Reject("no stock")

def hang(order):
    stop()
    time.sleep(60)

def ignore_the_signal(order):
    while True:
        stop()
        time.sleep(0.05)

def fill_the_disk(order):
    from tailrace.backend.embedded import EmbeddedBackend
    from tailrace.subscription.worker import session

    def refuse(backend, transaction):
        raise tailrace.DiskFull("no disk space for the hub")

    EmbeddedBackend.commit, session.LEAVE_S = refuse, 0.3
    stop()

def delete(order):
    with tailrace.open(os.environ["TAILRACE_HUB"]) as hub:
        hub.subscription("mailer").delete()

def two(order, other): ...

number = 7
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """A subscription of two orders of one key, in a directory with handlers. Their module is
    forgotten after the test."""
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        orders = hub.create_topic("orders", partitions=1)
        orders.push_many([("c7", {"id": 1}), ("c7", {"id": 2})])
        hub.create_subscription("mailer", topic="orders")
    (tmp_path / "shop_of_mails.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield cli
    sys.modules.pop("shop_of_mails", None)


@pytest.mark.parametrize("handler", ["shop_of_mails:send", "shop_of_mails.py:send_later"])
def test_messages_are_delivered_until_a_signal_comes(cli: CommandLine, handler: str) -> None:
    ended = cli.run("subscription", "run", "mailer", handler, "--id", "w1")
    assert ended.stderr.startswith("mailer: worker w1.")
    assert ended.stdout.startswith("mailer: worker w1.")
    assert ended.stdout.endswith(" stopped; 2 succeeded, 0 failed\n")


def test_the_report_is_json_on_request(cli: CommandLine) -> None:
    report = cli.json("subscription", "run", "mailer", "shop_of_mails:reject")
    del report["worker"]
    assert report == {
        "subscription": "mailer",
        "drained": True,
        "in_flight": 0,
        "succeeded": 0,
        "failed": 0,
        "rejected": 1,
    }


def test_a_worker_ends_with_an_error_if_its_subscription_is_deleted(cli: CommandLine) -> None:
    ended = cli.run("subscription", "run", "mailer", "shop_of_mails:delete", status=1)
    assert "UnknownSubscription: no subscription 'mailer'" in ended.stderr


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        ("shop_of_mails", "'shop_of_mails' names no function · valid: MODULE:NAME such as"),
        ("shop_of_mails:sent", "shop_of_mails has no 'sent' · did you mean 'send'?"),
        ("shop_of_letters:send", "no module 'shop_of_letters'"),
        ("shop_of_mails:number", "is not a function · valid: a function or coroutine"),
        ("shop_of_mails:two", "handler shop_of_mails.two cannot be called with one argument"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused(
    cli: CommandLine, handler: str, problem: str
) -> None:
    assert problem in cli.run("subscription", "run", "mailer", handler, status=2).stderr


def test_an_error_of_the_module_is_shown_with_its_traceback(
    cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "broken_shop.py").write_text("def send(order): ...\nint('many')\n")
    error = cli.run("subscription", "run", "mailer", "broken_shop:send", status=2).stderr
    assert error.startswith("Traceback (most recent call last):")
    assert 'broken_shop.py", line 2, in <module>' in error
    assert error.splitlines()[-1].startswith("ConfigError: broken_shop cannot be imported: ")


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ("hang", "1 call did not end in time, the messages will be redelivered"),
        ("fill_the_disk", "not all outcomes were stored, these messages will be redelivered"),
        ("ignore_the_signal", "ended at once; messages in flight will be redelivered"),
    ],
)
def test_calls_that_do_not_end_or_are_not_stored_leave_work(
    cli: CommandLine, handler: str, said: str
) -> None:
    command = ("subscription", "run", "mailer", f"shop_of_mails:{handler}")
    drain = "100ms" if handler == "hang" else "60s"
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *command, "--drain-timeout", drain],
        env=os.environ | {"TAILRACE_HUB": str(cli.hub)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3, done.stderr
    assert said in done.stdout + done.stderr
