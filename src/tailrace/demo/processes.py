"""Child processes of the demo: start, kill, restart and stop them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

_STOP_S_MAX: Final = 30.0


class Processes:
    """A number of child processes with the same role.

    `command` returns the module and arguments of the process with a given number. Leaving the
    `with` block kills the processes that still run.
    """

    def __init__(self, role: str, count: int, command: Callable[[int], Sequence[str]]) -> None:
        self._role = role
        self._command = command
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

    def stop(self) -> None:
        """Send SIGTERM to every process and wait until all have ended."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(_STOP_S_MAX)
        self.running()

    def _start(self, number: int) -> None:
        # In its own session, so that Ctrl-C reaches only the demo, which ends its processes.
        self._processes[number] = subprocess.Popen(
            [sys.executable, "-m", *self._command(number)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
