"""Child processes that tests start, listen to, stop, kill and fork.

Children are forked from a server that has imported Tailrace and opened nothing. Starting one takes
milliseconds, and a child shares no file with the test.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias

from tests.support.waiting import until

Report: TypeAlias = Callable[[Any], None]
"""Sends a value from the child to the test. The value has left the child when the call returns."""

P = ParamSpec("P")

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["tests.support.processes", "tailrace.backend.embedded", "tailrace.hub.hub"]
)
_ANSWER_S = 60.0


class Child:
    """A process that runs `work(report, ...)` until the call returns or the process is killed."""

    def __init__(
        self,
        work: Callable[Concatenate[Report, P], None],
        *arguments: P.args,
        **keywords: P.kwargs,
    ) -> None:
        self._reports, sender = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(
            target=_run, args=(work, sender, arguments, keywords), daemon=True
        )
        self._process.start()
        sender.close()

    def next_report(self, within_s: float = _ANSWER_S) -> Any:
        """Return the next report. Raises `EOFError` once the child has ended and all are read."""
        if not self._reports.poll(within_s):
            raise TimeoutError(f"the child reported nothing for {within_s:g} s")
        return self._reports.recv()

    def reports_for(self, seconds: float) -> Iterator[Any]:
        """Yield the reports that arrive within a number of seconds."""
        end = time.monotonic() + seconds
        while self._reports.poll(max(0.0, end - time.monotonic())):
            try:
                yield self._reports.recv()
            except EOFError:
                return

    def kill(self) -> Iterator[Any]:
        """Kill the child with SIGKILL, and return the reports it sent before."""
        self._process.kill()
        return self.rest()

    def rest(self, within_s: float = _ANSWER_S) -> Iterator[Any]:
        """Yield all remaining reports, and return when the child has ended."""
        while True:
            try:
                yield self.next_report(within_s)
            except EOFError:
                break
        self._process.join(_ANSWER_S)

    @property
    def pid(self) -> int:
        """The process ID, for signals."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code: 0 for success, -9 for SIGKILL, None while it runs."""
        return self._process.exitcode


class Stopped(NamedTuple):
    """The report of a process that stops itself at a point right after it."""

    point: str
    pid: int


class StopAt:
    """The `reach` callback of a backend in a child: stops the child once, at `point`."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.point: str | None = None

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.point = None
            self._report(Stopped(point, os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)


def await_stop(child: Child) -> Stopped:
    """Wait until the child has stopped itself, and return where."""
    stopped = child.next_report()
    assert isinstance(stopped, Stopped), stopped
    _await_state(stopped.pid, "T")
    return stopped


@contextmanager
def continued_after(stopped: Stopped) -> Iterator[None]:
    """Continue the process after the block, also if the block raises."""
    try:
        yield
    finally:
        os.kill(stopped.pid, signal.SIGCONT)


def stop(pid: int) -> Stopped:
    """Stop a process with SIGSTOP, and return when it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    _await_state(pid, "T")
    return Stopped("anywhere", pid)


def kill_now(pid: int) -> None:
    """Kill a process with SIGKILL. The process need not be a child of this one."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a forked child, and return its process ID. The child exits with 1 on error."""
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
    """Wait for a forked child to end. True if `work` returned."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def is_alive(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    return _state(pid) not in ("", "Z", "X")


def await_death(pid: int) -> None:
    """Wait until the process has ended, or is a zombie, and its locks are released."""
    until(lambda: not is_alive(pid), f"process {pid} did not end")


def _await_state(pid: int, state: str) -> None:
    until(lambda: _state(pid) == state, f"process {pid} is not in state {state!r}")


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]


def _run(
    work: Callable[..., None],
    sender: Connection,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> None:
    work(sender.send, *arguments, **keywords)
