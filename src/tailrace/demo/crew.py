"""Processes of the demo: started, killed, started again, asked to end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

_ENDING_S_MAX: Final = 30.0


class Crew:
    """So many processes, each started by the module and arguments that `command` gives for its
    number. Leaving the `with` block kills those that still run."""

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

    def at_work(self) -> bool:
        """Whether any still runs; `ChildProcessError` when one has failed."""
        statuses = {number: process.poll() for number, process in self._processes.items()}
        for number, status in statuses.items():
            if status:
                raise ChildProcessError(f"{self._role} {number} ended with status {status}")
        return None in statuses.values()

    def number_of(self, pid: int) -> int | None:
        """Which one a process is, if it is one of these."""
        found = (number for number, process in self._processes.items() if process.pid == pid)
        return next(found, None)

    def replace(self, number: int) -> None:
        """Kill one, as `kill -9` does, and start another in its place."""
        process = self._processes[number]
        process.kill()
        process.wait()
        self._start(number)

    def end(self) -> None:
        """Ask all to end, as `kill` does, and wait until they have."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(_ENDING_S_MAX)
        self.at_work()

    def _start(self, number: int) -> None:
        # A session of its own: an interrupt from the keyboard is for the demo, which ends its crew.
        self._processes[number] = subprocess.Popen(
            [sys.executable, "-m", *self._command(number)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
