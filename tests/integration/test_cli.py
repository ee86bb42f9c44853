"""The command line as people use it: real processes, pipes, signals and a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tests.support.waiting import until

TAILRACE = [sys.executable, "-m", "tailrace"]
SECONDS_MAX = 60


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let every command of a test use this hub."""
    directory = tmp_path / "hub"
    monkeypatch.setenv("TAILRACE_HUB", str(directory))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    return directory


def run(*args: str, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*TAILRACE, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


def start(*args: str, **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*TAILRACE, *args], **streams)


def lines(first: int, end: int) -> str:
    return "".join(f"c{number % 97}:{number}\n" for number in range(first, end))


def per_key(printed: Iterator[str] | list[str]) -> dict[str, list[int]]:
    seen: dict[str, list[int]] = {}
    for line in printed:
        key, _, number = line.strip().partition(" ")
        seen.setdefault(key, []).append(int(number))
    return seen


def expected(end: int) -> dict[str, list[int]]:
    return {f"c{key}": list(range(key, end, 97)) for key in range(97)}


def test_piped_messages_come_out_in_order_per_key_over_scalings() -> None:
    run("topic", "create", "orders", "--partitions", "4")
    for first, partitions in ((0, 12), (4_000, 8), (8_000, 12)):
        run("push", "orders", "-K:", stdin=lines(first, min(first + 4_000, 10_000)))
        run("topic", "scale", "orders", str(partitions), "--yes")
    out = run("tail", "orders", "--exit", "-f", "%k %v").stdout.splitlines()
    assert per_key(out) == expected(10_000)


def test_a_following_tail_prints_pushes_and_scalings_as_they_happen() -> None:
    run("topic", "create", "orders", "--partitions", "4")
    tail = start(
        "tail", "orders", "--from", "earliest", "-n", "3000", "-f", "%k %v", stdout=subprocess.PIPE
    )
    run("push", "orders", "-K:", stdin=lines(0, 1_000))
    run("topic", "scale", "orders", "12", "--yes")
    run("push", "orders", "-K:", stdin=lines(1_000, 2_000))
    run("topic", "scale", "orders", "6", "--yes")
    run("push", "orders", "-K:", stdin=lines(2_000, 3_000))
    out, _ = tail.communicate(timeout=SECONDS_MAX)
    assert tail.returncode == 0
    assert per_key(out.decode().splitlines()) == expected(3_000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_push_that_is_stopped_stores_the_lines_it_has_read(number: signal.Signals) -> None:
    run("topic", "create", "orders")
    tail = start("tail", "orders", "--from", "earliest", "-n", "3", stdout=subprocess.PIPE)
    push = start("push", "orders", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert push.stdin is not None
    push.stdin.write(b"1\n2\n3\n4")
    push.stdin.flush()
    tail.communicate(timeout=SECONDS_MAX)  # it has the three whole lines: they are stored
    push.send_signal(number)
    _, error = push.communicate(timeout=SECONDS_MAX)
    assert push.returncode == 3
    assert b"stored 3 messages" in error


def test_ctrl_c_ends_a_following_tail_with_status_0() -> None:
    run("topic", "create", "orders")
    run("push", "orders", "1")
    tail = start("tail", "orders", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert tail.stdout is not None
    assert tail.stdout.readline() == b"1\n"
    tail.send_signal(signal.SIGINT)
    _, error = tail.communicate(timeout=SECONDS_MAX)
    assert (tail.returncode, error) == (0, b"")


def test_ctrl_c_before_the_end_of_a_group_has_its_own_status(hub: Path) -> None:
    run("topic", "create", "orders", "--partitions", "1")
    run("push", "orders", "1")
    with tailrace.open(hub) as opened, opened.tail("orders", group="printing") as other:
        next(iter(other))  # the group is not through before this one is
        tail = start("tail", "orders", "--group", "printing", "--exit", stderr=subprocess.PIPE)
        until(lambda: len(opened.group("printing").describe().consumers) == 2)
        tail.send_signal(signal.SIGINT)
        tail.communicate(timeout=SECONDS_MAX)
    assert tail.returncode == 3


def test_watching_refreshes_until_ctrl_c() -> None:
    run("topic", "create", "orders")
    watch = start("status", "--watch", "-o", "json", stdout=subprocess.PIPE)
    assert watch.stdout is not None
    assert json.loads(watch.stdout.readline())["hub"]["messages"] == 0
    run("push", "orders", "1")
    while json.loads(watch.stdout.readline())["hub"]["messages"] == 0:
        pass
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=SECONDS_MAX)
    assert watch.returncode == 0


@pytest.mark.parametrize("end", [("--exit",), ()], ids=["with an end", "following"])
def test_a_closed_pipe_is_no_error(end: tuple[str, ...]) -> None:
    run("topic", "create", "orders")
    run("push", "orders", stdin="".join(f"{number}\n" for number in range(20_000)))
    tail = start(
        "tail", "orders", "--from", "earliest", *end, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert tail.stdout is not None
    assert tail.stdout.readline()
    tail.stdout.close()
    _, error = tail.communicate(timeout=SECONDS_MAX)
    assert (tail.returncode, error) == (0, b"")


def test_a_waiting_tail_leaves_its_group_when_the_pipe_is_closed() -> None:
    run("topic", "create", "orders", "--partitions", "1")
    run("push", "orders", stdin="1\n2\n3\n")
    tail = start(
        "tail", "orders", "--group", "billing", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert tail.stdout is not None
    assert [tail.stdout.readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
    tail.stdout.close()
    _, error = tail.communicate(timeout=SECONDS_MAX)
    assert (tail.returncode, error) == (0, b"")
    group = json.loads(run("group", "show", "billing", "-o", "json").stdout)
    assert (group["consumers"], group["partitions"][0]["mark"]) == ([], 3)


def test_messages_that_were_not_printed_are_not_acknowledged() -> None:
    run("topic", "create", "orders", "--partitions", "1", "--type", "text")
    run("push", "orders", stdin="".join(f"{number:04095}\n" for number in range(50)))
    ours, theirs = os.pipe()
    held = fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 8192) // 4096
    tail = start("tail", "orders", "--group", "billing", stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    assert os.read(ours, 4096)
    os.close(ours)
    _, error = tail.communicate(timeout=SECONDS_MAX)
    assert (tail.returncode, error) == (0, b"")
    group = json.loads(run("group", "show", "billing", "-o", "json").stdout)
    assert group["consumers"] == []
    assert group["partitions"][0]["mark"] <= 1 + held


@pytest.mark.parametrize(
    ("answer", "status", "partitions"), [(b"y\n", 0, 12), (b"n\n", 3, 4), (b"\n", 3, 4)]
)
def test_on_a_terminal_a_change_shows_its_plan_and_asks(
    answer: bytes, status: int, partitions: int
) -> None:
    run("topic", "create", "orders")
    ours, theirs = pty.openpty()
    scale = start(
        "topic", "scale", "orders", "12", stdin=theirs, stdout=theirs, stderr=subprocess.STDOUT
    )
    os.close(theirs)
    printed = b""
    while b"apply? [y/N]" not in printed:
        printed += os.read(ours, 1024)
    os.write(ours, answer)
    assert scale.wait(SECONDS_MAX) == status
    os.close(ours)
    assert b"4 -> 12 partitions" in printed
    listed = {each["name"]: each for each in json.loads(run("topic", "list", "-o", "json").stdout)}
    assert listed["orders"]["partitions"] == partitions


def test_errors_have_their_statuses(hub: Path) -> None:
    assert "no hub in" in run("status", status=1).stderr
    run("topic", "create", "orders", "-p", "5", status=2)
    run("topic", "create", "orders")
    assert "did you mean 'orders'?" in run("tail", "order", "--exit", status=1).stderr
    run("push", "orders", "1")
    for file in hub.glob("topics/orders/*/*.log"):
        file.unlink()
    assert run("status", status=4).stdout.startswith("NOT WELL")


def test_every_listing_is_json_on_demand() -> None:
    run("topic", "create", "orders")
    run("push", "orders", "1")
    for command in (
        ("topic", "list"),
        ("topic", "show", "orders"),
        ("topic", "route", "orders", "c7"),
        ("topic", "scale", "orders", "12", "--dry-run"),
        ("segment", "list"),
        ("segment", "verify"),
        ("status",),
        ("hub", "info"),
        ("config", "show"),
        ("version",),
        ("tail", "orders", "--exit"),
    ):
        assert json.loads(run(*command, "-o", "json").stdout)
