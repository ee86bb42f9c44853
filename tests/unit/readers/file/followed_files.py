"""A source of files that a test changes between two polls, without waiting."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tailrace import readers
from tailrace.hub.hub import Hub
from tailrace.message import Message, Mode
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun
from tailrace.testing import MemoryBackend
from tests.support.topics import all_messages

QUIET_STEPS = 12
"""Steps without new rows after which every decision of the reader has been made."""


class FollowedFiles:
    """A source run over the files of a directory that can be stopped and started again."""

    def __init__(self, path: str, until: Until = Until.STOPPED, **options: Any) -> None:
        self.hub = Hub.from_backend(MemoryBackend())
        self.log = self.hub.create_topic("log", partitions=1)
        self.letters = self.hub.create_topic("letters", partitions=1)
        # Every step polls the files.
        self.reader = readers.file(path, **{"poll": "1us"} | options)
        self._run: SourceRun | None = None
        self.begin(until)

    def begin(self, until: Until = Until.STOPPED) -> None:
        """Start a run, after ending the current one."""
        self.end()
        self._run = SourceRun(self.hub, "s", self.reader, self.log, self.letters, until)

    def end(self) -> None:
        """End the run, if there is one."""
        if self._run is not None:
            self._run.close()
            self._run = None

    @property
    def done(self) -> bool:
        """True if no run is active, or everything within its `Until` was read."""
        return self._run is None or self._run.done

    def step(self) -> bool:
        """Do one step of the run. True if it read rows."""
        assert self._run is not None
        return self._run.step()

    def poll(self) -> None:
        """Poll the files at least once, and read every row found."""
        while self.step():
            pass

    def drain(self) -> None:
        """Read until no more rows come."""
        quiet = 0
        while quiet < QUIET_STEPS and not self.done:
            quiet = 0 if self.step() else quiet + 1

    def rows(self) -> list[Any]:
        """Drain the files, and return the field `n` of every row, in order."""
        self.drain()
        return [msgspec.json.decode(each.data)["n"] for each in self.messages() if _is_row(each)]

    def messages(self) -> list[Message[Any]]:
        """Return all messages of the commit log."""
        return all_messages(self.log, control=True)

    def bad(self) -> list[tuple[str, str, bytes]]:
        """Drain the files, and return the dead letters: position, error and value."""
        self.drain()
        return [
            (
                each.headers["tailrace.where"].decode(),
                each.headers["tailrace.error"].decode(),
                each.data,
            )
            for each in all_messages(self.letters)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


def lines(*numbers: object) -> str:
    """Return JSON lines with a field `n`."""
    return "".join(f'{{"n":{msgspec.json.encode(number).decode()}}}\n' for number in numbers)


def append(path: Path, text: str) -> None:
    """Append text to a file."""
    with path.open("a") as file:
        file.write(text)


def replace(path: Path, text: str) -> None:
    """Replace a file by a new one of the same name, as editors do."""
    other = path.with_name(".new")
    other.write_text(text)
    os.replace(other, path)


def _is_row(message: Message[Any]) -> bool:
    return message.mode is not Mode.COMPLETE
