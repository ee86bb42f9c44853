"""A writer on the test bench: a commit log that the test fills, and one writer that it drives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tailrace
from tailrace.backend.contract import Transaction
from tailrace.clock import SystemClock
from tailrace.log.record import Record
from tailrace.message import Message, Partition
from tailrace.pipeline.books import Books, State, WriterName
from tailrace.pipeline.defining import writer_definition
from tailrace.pipeline.definition import PipelineDefinition
from tailrace.pipeline.driving import DriverOf
from tailrace.pipeline.writer import Writer
from tailrace.pipeline.writing import WriterRun
from tailrace.source.reader import Reader


@dataclass
class Bench:
    """One writer ``lake/out`` over the commit log ``lake.commits`` of one partition."""

    hub: tailrace.Hub
    driver_of: DriverOf
    writer: Writer
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = WriterName("lake", "out")
        self.log = self.hub.create_topic("lake.commits", partitions=1, exist_ok=True)
        self.dead = self.hub.create_topic("lake.dead-letters", partitions=1, exist_ok=True)
        self.partition = Partition("lake.commits", 0, 0)

    def append(self, namespaces: Iterable[str], padding_bytes: int = 0) -> None:
        """Append a record of each namespace, its value its number, and so many bytes that say
        nothing."""
        start = self.hub.backend.log.bounds(self.partition).end
        value = b'{"n":%d' + (
            b',"padding":"%s"}' % (b"x" * padding_bytes) if padding_bytes else b"}"
        )
        records = tuple(
            Record(0, 0, 0, 0, namespace.encode(), None, value % number)
            for number, namespace in enumerate(namespaces, start)
        )
        self.hub.backend.commit(Transaction(((self.partition, records),)))

    def run(self) -> WriterRun:
        """Start the writer, deliver all it can, and stop it, as one run of the pipeline does."""
        run = self.start()
        run.drain()
        run.end()
        return run

    def start(self) -> WriterRun:
        """Start the writer, and deliver nothing yet."""
        definition = writer_definition("out", self.writer, pipeline="lake", **self.options)
        pipeline = PipelineDefinition(name="lake", reader=Reader(), writers=(definition,))
        driver = self.driver_of(self.hub, pipeline, definition)
        run = WriterRun(self.hub, pipeline, definition, driver.engine, SystemClock())
        run.enrol()
        run.begin()
        return run

    def books(self) -> Books:
        """The books as they are stored."""
        books = Books(self.hub.backend, self.name, self.log.view)
        books.read()
        return books

    def acknowledge(self, *offsets: int) -> None:
        """Put these into the ledger, as if they had been delivered."""
        books = Books(self.hub.backend, self.name, self.log.view)
        books.take()
        for offset in offsets:
            books.progress[self.partition].ack(offset, offset + 1)
        books.commit(plan=books.plan)

    def dead_letters(self) -> list[Message[Any]]:
        """All dead letters, oldest first."""
        where = Partition("lake.dead-letters", 0, 0)
        batches = self.dead.batches(0, 0)
        return [letter for batch in batches for letter in self.dead.messages(where, batch)]

    @property
    def mark(self) -> int:
        """The low-water mark: the first offset that is not acknowledged."""
        return self.books().progress[self.partition].mark

    @property
    def state(self) -> State:
        """The stored state."""
        return self.books().state.state


def directory(path: Path) -> Path:
    """A directory, made."""
    path.mkdir(parents=True, exist_ok=True)
    return path
