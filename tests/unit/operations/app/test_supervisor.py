"""A supervisor and real processes, which are not those of an app."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.operations.app.activity import Activity, SubscriptionActivity
from tailrace.operations.app.supervisor import Supervisor
from tests.support.processes import is_alive
from tests.support.waiting import in_thread, until

CHILD = """
import os, socket, sys, time
link, directory = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
def say(kind, more=""):
    link.sendall(b'{"kind": "%s"%s}\\n' % (kind.encode(), more.encode()))
def ready():
    say("ready")
    open(os.path.join(directory, str(os.getpid())), "x").close()
"""

ANSWERING = """
ready()
while link.recv(100):
    say("active", ', "activity": {"mailer": {"shards": 1, "succeeded": 7}}')
"""

STARTING_A_PROGRAM = """
import subprocess
program = subprocess.Popen([sys.executable, "-S", "-E", "-c", "import time; time.sleep(600)"])
open(os.path.join(directory, str(program.pid)), "x").close()
ready()
link.recv(1)
"""

WAITING = "ready()\nlink.recv(1)\n"

REFUSED = 'say("refused")\nsys.exit(2)\n'


def supervisor(
    directory: Path,
    text: str,
    processes: int = 2,
    observe: Callable[[Activity], None] | None = None,
) -> Supervisor:
    """Return a supervisor of processes that run a text."""

    def command(link: int) -> list[str]:
        return [sys.executable, "-S", "-E", "-c", CHILD + text, str(link), str(directory)]

    return Supervisor(command, processes, drain_s=30.0, observe=observe)


def pids(directory: Path) -> list[int]:
    """Return the processes that were ready, in any order."""
    return [int(path.name) for path in directory.iterdir()]


def stop(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def test_all_processes_are_started_and_end_with_the_supervisor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def act() -> None:
        until(lambda: len(pids(tmp_path)) == 3)
        stop()

    in_thread(act)
    with caplog.at_level(logging.INFO, "tailrace.app"):
        # The default action of SIGTERM ends these processes, which is not how an app drains.
        assert supervisor(tmp_path, WAITING, 3).run() == 3
    assert caplog.messages.count("stopping: waiting for the calls in flight in all processes") == 1
    assert not any(map(is_alive, pids(tmp_path)))


def test_a_process_that_ends_just_before_it_is_asked_to_drain_does_not_end_the_supervisor(
    tmp_path: Path,
) -> None:
    def end_one(record: logging.LogRecord) -> bool:
        if record.getMessage().startswith("stopping"):
            ended = pids(tmp_path)[0]
            os.kill(ended, signal.SIGKILL)
            os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
        return True

    def act() -> None:
        until(lambda: len(pids(tmp_path)) == 2)
        stop()

    log = logging.getLogger("tailrace.app")
    level = log.level
    log.setLevel(logging.INFO)
    log.addFilter(end_one)
    try:
        in_thread(act)
        assert supervisor(tmp_path, WAITING).run() == 3
    finally:
        log.removeFilter(end_one)
        log.setLevel(level)
    assert not any(map(is_alive, pids(tmp_path)))


def test_a_process_that_is_killed_is_started_again_and_that_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def act() -> None:
        until(lambda: len(pids(tmp_path)) == 2)
        os.kill(pids(tmp_path)[0], signal.SIGKILL)
        until(lambda: len(pids(tmp_path)) == 3)
        stop()

    in_thread(act)
    with caplog.at_level(logging.INFO, "tailrace.app"):
        supervisor(tmp_path, WAITING).run()
    (restart,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "was killed by SIGKILL; it is started again in 0." in restart
    assert sum("is ready" in each.getMessage() for each in caplog.records) == 3


def test_the_programs_of_a_process_that_is_killed_are_killed_too(tmp_path: Path) -> None:
    def act() -> None:
        until(lambda: len(pids(tmp_path)) == 2)
        before = pids(tmp_path)
        (killed,) = [pid for pid in before if os.getpgid(pid) == pid]
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(pids(tmp_path)) == 4)
        alive.extend(filter(is_alive, before))
        stop()

    alive: list[int] = []
    in_thread(act)
    supervisor(tmp_path, STARTING_A_PROGRAM, 1).run()
    assert alive == []


def test_the_activity_of_all_processes_is_observed_together(tmp_path: Path) -> None:
    seen: list[Activity] = []

    def observe(activity: Activity) -> None:
        seen.append(activity)
        if activity == {"mailer": SubscriptionActivity(shards=2, succeeded=14)}:
            stop()

    supervisor(tmp_path, ANSWERING, observe=observe).run()
    assert seen[0] == {}


def test_an_error_that_will_not_go_away_ends_everything_with_its_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert supervisor(tmp_path, REFUSED, 3).run() == 2
    (error,) = [each.getMessage() for each in caplog.records]
    assert "ended with exit status 2; the app is stopped" in error


def test_a_second_signal_kills_processes_that_do_not_end(tmp_path: Path) -> None:
    deaf = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: say('active'))\n"
    stubborn = deaf + "ready()\nwhile True: time.sleep(60)\n"

    def act() -> None:
        until(lambda: len(pids(tmp_path)) == 2)
        stop()
        stop(signal.SIGINT)

    in_thread(act)
    assert supervisor(tmp_path, stubborn).run() == 3
    assert not any(map(is_alive, pids(tmp_path)))


def test_a_command_that_cannot_be_executed_is_tried_again_until_a_signal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries: list[int] = []

    def command(link: int) -> list[str]:
        tries.append(link)
        if len(tries) == 2:
            stop()
        return ["/nonexistent/python"]

    assert Supervisor(command, 2, drain_s=30.0).run() == 0
    assert "process 1 could not be started: [Errno 2]" in caplog.text


def test_the_supervisor_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    supervisor(tmp_path, REFUSED).run()
    assert set(os.listdir("/proc/self/fd")) <= before
