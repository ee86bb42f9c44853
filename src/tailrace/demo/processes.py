"""Child processes of the demo: start, kill, restart and stop them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_STOP_S_MAX: Final = 30.0
_THAWED_S: Final = 0.01


class Processes:
    """A number of child processes with the same role.

    `command` returns the module and arguments of the process with a given number. With `logs`, the
    stderr of each goes to a file in that directory. Leaving the `with` block kills the processes
    that still run.
    """

    def __init__(
        self,
        role: str,
        count: int,
        command: Callable[[int], Sequence[str]],
        logs: Path | None = None,
    ) -> None:
        self._role = role
        self._command = command
        self._logs = logs
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._numbers = range(count)

    def __enter__(self) -> Self:
        for number in self._numbers:
            self._start(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def running(self) -> bool:
        """True if a process still runs. Raise `ChildProcessError` if one has failed."""
        statuses = {number: process.poll() for number, process in self._processes.items()}
        for number, status in statuses.items():
            if status:
                raise ChildProcessError(f"{self._role} {number} ended with status {status}")
        return None in statuses.values()

    def number_of(self, pid: int) -> int | None:
        """Return the number of the process with a process id, or None."""
        found = (number for number, process in self._processes.items() if process.pid == pid)
        return next(found, None)

    def replace(self, number: int) -> None:
        """Kill a process with SIGKILL and start another with the same number."""
        process = self._processes[number]
        process.kill()
        process.wait()
        self._start(number)

    def freeze(self, number: int, may: Callable[[], bool]) -> None:
        """Stop a process with SIGSTOP at an instant at which `may` is True."""
        process = self._processes[number]
        while True:
            process.send_signal(signal.SIGSTOP)
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                raise ChildProcessError(f"{self._role} {number} ended before it was frozen")
            if may():
                return
            process.send_signal(signal.SIGCONT)
            time.sleep(_THAWED_S)

    def thaw(self, number: int) -> None:
        """Continue a frozen process."""
        self._processes[number].send_signal(signal.SIGCONT)

    def log(self, number: int) -> str:
        """Return what the process with a given number has written to stderr."""
        return self._log_file(number).read_text()

    def stop(self) -> None:
        """Send SIGTERM to every process and wait until all have ended."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(_STOP_S_MAX)
        self.running()

    def _start(self, number: int) -> None:
        # In its own session, so that Ctrl-C reaches only the demo, which ends its processes.
        with ExitStack() as stack:
            stderr = None
            if self._logs is not None:
                stderr = stack.enter_context(self._log_file(number).open("ab"))
            self._processes[number] = subprocess.Popen(
                [sys.executable, "-m", *self._command(number)],
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )

    def _log_file(self, number: int) -> Path:
        assert self._logs is not None, f"the stderr of {self._role} {number} goes to no file"
        return self._logs / f"{self._role}-{number}.log"
