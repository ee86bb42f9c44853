"""The command line in a process of its own, with a module of a user, and everything it prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.processes import is_alive, kill_now
from tests.support.waiting import until


class RunningCommand:
    """`tailrace`, run in a directory. Leaving the `with` block kills it and its children."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._output = directory / f"output-{len(list(directory.iterdir()))}"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tailrace", *arguments],
                cwd=directory,
                env={**os.environ, "TAILRACE_HUB": str(directory / "hub")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        children = self.children
        self.kill()
        for child in children:
            kill_now(child)

    @property
    def output(self) -> str:
        """What was printed so far, on both streams."""
        return self._output.read_text()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def children(self) -> list[int]:
        """The processes that it has started and that live, oldest first."""
        task = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        listed = task.read_text().split() if task.exists() else []
        return [pid for pid in map(int, listed) if is_alive(pid)]

    def await_output(self, text: str, count: int = 1) -> None:
        """Wait until a text was printed a number of times. Fails if the command ends before."""
        until(lambda: self._process.poll() is not None or self.output.count(text) >= count)
        assert self.output.count(text) >= count, self.output

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill the command itself, not its children."""
        self._process.kill()
        self._process.wait()

    def status(self) -> int:
        """Wait for the end of the command, and return its exit status."""
        return self._process.wait(timeout=60)
