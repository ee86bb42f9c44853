"""A source of files that a test changes while it is followed, look by look, without waiting."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tailrace import readers
from tailrace.hub import Hub
from tailrace.message import Message, Mode
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun
from tailrace.testing import MemoryBackend
from tailrace.topic.topic import Topic

QUIET_STEPS = 12
"""So many steps without anything new are more looks than any decision takes."""


class Followed:
    """A run over files in a directory, which can be stopped and begun again."""

    def __init__(self, path: str, until: Until = Until.STOPPED, **options: Any) -> None:
        self.hub = Hub.from_backend(MemoryBackend())
        self.log = self.hub.create_topic("log", partitions=1)
        self.letters = self.hub.create_topic("letters", partitions=1)
        # Every step is a look.
        self._reader = readers.file(path, **{"poll": "1us"} | options)
        self._run: SourceRun | None = None
        self.begin(until)

    def begin(self, until: Until = Until.STOPPED) -> None:
        """Begin to read."""
        self.end()
        self._run = SourceRun(self.hub, "s", self._reader, self.log, self.letters, until)

    def end(self) -> None:
        """Stop reading."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def step(self) -> bool:
        """One step."""
        assert self._run is not None
        return self._run.step()

    def look(self) -> None:
        """Look once at least, and read what is known then."""
        while self.step():
            pass

    def settle(self) -> None:
        """Read until nothing more comes."""
        quiet = 0
        while quiet < QUIET_STEPS and self._run is not None and not self._run.done:
            quiet = 0 if self.step() else quiet + 1

    def rows(self) -> list[Any]:
        """The values of the field `n` of all rows, in their order, after all is read."""
        self.settle()
        return [msgspec.json.decode(each.data)["n"] for each in self.messages() if _is_row(each)]

    def messages(self) -> list[Message[Any]]:
        """All records of the commit log."""
        return _messages(self.log)

    def bad(self) -> list[tuple[str, str, bytes]]:
        """The dead letters: where, what was wrong, and the value."""
        self.settle()
        return [
            (
                each.headers["tailrace.where"].decode(),
                each.headers["tailrace.error"].decode(),
                each.data,
            )
            for each in _messages(self.letters)
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
    """JSON lines with a field `n`."""
    return "".join(f'{{"n":{msgspec.json.encode(number).decode()}}}\n' for number in numbers)


def append(path: Path, text: str) -> None:
    """Write at the end of a file."""
    with path.open("a") as file:
        file.write(text)


def replace(path: Path, text: str) -> None:
    """Let another file take the name, as editors do."""
    other = path.with_name(".new")
    other.write_text(text)
    os.replace(other, path)


def _messages(topic: Topic[Any]) -> list[Message[Any]]:
    reader = topic.reader()
    found: list[Message[Any]] = []
    while reads := reader.poll():
        for partition, records in reads:
            found += topic.messages(partition, records)
    return found


def _is_row(message: Message[Any]) -> bool:
    return message.mode is not Mode.COMPLETE
