"""Processes that stop themselves at a named point, or fork, and are watched by a test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.integration.children import Child, Report
from tests.waiting import until


class Stopped(NamedTuple):
    """A process stops itself at this point, right after it has said so."""

    point: str
    pid: int


class StopAt:
    """The `reach` of a backend in a child that stops itself, once, at the point it is set to."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.point: str | None = None

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.point = None
            self._report(Stopped(point, os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)


def await_stop(child: Child) -> Stopped:
    """Wait until the child has stopped itself, and say where."""
    stopped = child.next_report()
    assert isinstance(stopped, Stopped), stopped
    _await_state(stopped.pid, "T")
    return stopped


@contextmanager
def continued_after(stopped: Stopped) -> Iterator[None]:
    """Whatever happens inside, the process goes on afterwards."""
    try:
        yield
    finally:
        os.kill(stopped.pid, signal.SIGCONT)


def stop(pid: int) -> Stopped:
    """Stop a process wherever it is, and return when it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    _await_state(pid, "T")
    return Stopped("anywhere", pid)


def kill_now(pid: int) -> None:
    """End a process, which may be nobody's child any more, as by `kill -9`."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a forked child, which then ends, with 1 if it raised; the child's number."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def ended_well(pid: int) -> bool:
    """Wait for a forked child to end; whether `work` returned."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def is_alive(pid: int) -> bool:
    """Whether the process is there and not only waiting to be buried."""
    return _state(pid) not in ("", "Z", "X")


def await_death(pid: int) -> None:
    """Return when the process is gone, or waits to be buried, and its locks with it."""
    until(lambda: not is_alive(pid), f"process {pid} does not die")


def _await_state(pid: int, state: str) -> None:
    until(lambda: _state(pid) == state, f"process {pid} is not in state {state!r}")


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]
