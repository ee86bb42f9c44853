"""The producers' processes: started, killed, started again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tailrace.demo.load import PRODUCERS, Load


class Crew:
    """One process for each producer. Leaving the `with` block ends those that still run."""

    def __init__(self, directory: Path, load: Load) -> None:
        self._directory = directory
        self._load = load
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for producer in range(PRODUCERS):
            self._start(producer)
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
        statuses = {producer: process.poll() for producer, process in self._processes.items()}
        for producer, status in statuses.items():
            if status:
                raise ChildProcessError(f"producer {producer} ended with status {status}")
        return None in statuses.values()

    def replace(self, producer: int) -> None:
        """Kill a producer, as `kill -9` does, and start another in its place."""
        process = self._processes[producer]
        process.kill()
        process.wait()
        self._start(producer)

    def _start(self, producer: int) -> None:
        # A session of its own: an interrupt from the keyboard is for the demo, which ends its crew.
        self._processes[producer] = subprocess.Popen(
            [
                *(sys.executable, "-m", "tailrace.demo.producing"),
                *(str(self._directory), str(producer), str(self._load.orders)),
            ],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
