"""A reader of scripted batches, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.source.reader import Batch, Opened, Reader, Split, Until
from tailrace.source.run import SourceRun
from tailrace.topic.topic import Topic

Script = dict[str, list[Batch | None]]


def rows(*values: str, namespace: str = "ns") -> Any:
    """Records with these values."""
    return from_records(
        [
            Record(0, 1000, Mode.COPY, Op.INSERT, namespace.encode(), None, value.encode())
            for value in values
        ]
    )


class Shelf(Opened):
    """A reading of scripted batches; the position is the number of the next one."""

    def __init__(self, script: Script, splits: tuple[Split, ...]) -> None:
        self._script = script
        self._splits = splits
        self.lasts: dict[str, Record | None] = {}
        self.started: list[str] = []

    def splits(self) -> tuple[Split, ...]:
        return self._splits

    def read(self, split: Split, position: Any, last: Record | None) -> Iterator[Batch | None]:
        self.lasts[split.id] = last
        self.started.append(split.id)
        return iter(self._script[split.id][position or 0 :])


class ShelfReader(Reader, frozen=True):
    """The reader of a shelf that the test holds."""

    shelf: Any

    def open(self, until: Until) -> Shelf:
        assert isinstance(self.shelf, Shelf)
        return self.shelf


Begin = Callable[..., SourceRun]


def shelf_of(script: Script, *splits: Split) -> Shelf:
    return Shelf(script, splits or tuple(map(Split, script)))


def finish(run: SourceRun) -> None:
    while not run.done:
        run.step()
    run.close()


def values(topic: Topic[Any]) -> list[str]:
    """Every value of a topic, in lineage order."""
    reader = topic.reader()
    found: list[str] = []
    while reads := reader.poll():
        for _, records in reads:
            data: list[Any] = records["value"].to_pylist()
            found += (value.decode() for value in data)
    return found


def messages(topic: Topic[Any]) -> list[Any]:
    """Every message of a topic of one partition."""
    return [message for read in topic.reader().poll() for message in topic.messages(*read)]
