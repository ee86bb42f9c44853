"""A reader of scripted batches, and the values that reached a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tailrace.hub.topic import Topic
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.source.reader import Batch, Closeable, Reader, Split, Until
from tailrace.source.run import SourceRun
from tests.support.topics import all_messages

Script = dict[str, list[Batch | None]]


def rows(*values: str, namespace: str = "ns") -> Any:
    """Return records with these values."""
    return from_records(
        [
            Record(0, 1000, Mode.COPY, Op.INSERT, namespace.encode(), None, value.encode())
            for value in values
        ]
    )


class ScriptedReading(Closeable):
    """An open reading of scripted batches. A position is the number of the next batch."""

    def __init__(self, script: Script, splits: tuple[Split, ...]) -> None:
        self._script = script
        self._splits = splits
        self.lasts: dict[str, Record | None] = {}
        self.followed: dict[str, dict[str, Any]] = {}
        self.started: list[str] = []
        self.opened: dict[str, Split] = {}

    def splits(self) -> tuple[Split, ...]:
        return self._splits

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        self.lasts[split.id] = last
        self.followed[split.id] = dict(followed)
        self.started.append(split.id)
        self.opened[split.id] = split
        return iter(self._script[split.id][position or 0 :])


class ScriptedReader(Reader, frozen=True):
    """A reader that opens the reading it was given."""

    reading: Any

    def open(self, until: Until) -> ScriptedReading:
        assert isinstance(self.reading, ScriptedReading)
        return self.reading


Begin = Callable[..., SourceRun]


def scripted(script: Script, *splits: Split) -> ScriptedReading:
    """Return a reading of a script, which may name more splits than the script has."""
    return ScriptedReading(script, splits or tuple(map(Split, script)))


def finish(run: SourceRun) -> None:
    """Run a source to its end, and close it."""
    while not run.done:
        run.step()
    run.close()


def values(topic: Topic[Any]) -> list[str]:
    """Return every value of a topic as text, in lineage order."""
    return [message.data.decode() for message in all_messages(topic)]
