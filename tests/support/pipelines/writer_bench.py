"""A test bench for one writer: a commit log that the test fills, and the writer that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import tailrace
from tailrace.backend.contract import Transaction
from tailrace.clock import SystemClock
from tailrace.log.record import Record
from tailrace.message import Message, Partition
from tailrace.operations.pipeline.interventions import retry_one_at_a_time
from tailrace.pipeline.catalog import register
from tailrace.pipeline.definition.checks import writer_definition
from tailrace.pipeline.definition.definition import PipelineDefinition
from tailrace.pipeline.engine.driver import DriverOf
from tailrace.pipeline.writer import Writer
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.writer_ledger import WriterLedger, WriterName
from tailrace.pipeline.writing.writer_run import WriterRun
from tailrace.source.reader import Reader
from tailrace.topic.internal_topics import open_internal_topic


@dataclass
class WriterBench:
    """One writer ``lake/out`` over the commit log ``lake.commits`` of one partition."""

    hub: tailrace.Hub
    driver_of: DriverOf
    writer: Writer
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = WriterName("lake", "out")
        self.log = self.open_topic("lake.commits")
        self.dead = self.open_topic("lake.dead-letters")
        self.partition = Partition("lake.commits", 0, 0)

    def open_topic(self, name: str) -> tailrace.Topic[Any]:
        """Open a topic of the pipeline, or create it."""
        open_internal_topic(self.hub.backend, name, 0)
        return self.hub.topic(name)

    def append(self, namespaces: Iterable[str], padding_bytes: int = 0) -> None:
        """Append a record of each namespace. Its value has its number, and padding."""
        start = self.hub.backend.log.bounds(self.partition).end
        value = b'{"n":%d' + (
            b',"padding":"%s"}' % (b"x" * padding_bytes) if padding_bytes else b"}"
        )
        records = tuple(
            Record(0, 0, 0, 0, namespace.encode(), None, value % number)
            for number, namespace in enumerate(namespaces, start)
        )
        self.hub.backend.commit(Transaction(((self.partition, records),)))

    def append_documents(
        self, documents: Iterable[Mapping[str, Any]], namespace: str = "orders"
    ) -> None:
        """Append a record for each document."""
        key = namespace.encode()
        records = tuple(
            Record(0, 0, 0, 0, key, None, msgspec.json.encode(each)) for each in documents
        )
        self.hub.backend.commit(Transaction(((self.partition, records),)))

    def run(self) -> WriterRun:
        """Start the writer, deliver all it can, and stop it, as one run of the pipeline does."""
        run = self.start()
        run.drain()
        run.end()
        return run

    def start(self) -> WriterRun:
        """Start the writer without delivering anything."""
        definition = writer_definition("out", self.writer, pipeline="lake", **self.options)
        pipeline = PipelineDefinition(name="lake", reader=Reader(), writers=(definition,))
        driver = self.driver_of(self.hub, pipeline, definition)
        run = WriterRun(self.hub, pipeline, definition, driver.engine, SystemClock())
        run.register()
        run.begin()
        return run

    def ledger(self) -> WriterLedger:
        """Return the stored ledger."""
        ledger = WriterLedger(self.hub.backend, self.name, self.log.view)
        ledger.read()
        return ledger

    def retry_one_at_a_time(self) -> None:
        """Let the next run deliver one record at a time, as an operator does after a failure."""
        definition = writer_definition("out", self.writer, pipeline="lake", **self.options)
        pipeline = PipelineDefinition(name="lake", reader=Reader(), writers=(definition,))
        register(self.hub.backend.store, pipeline)
        retry_one_at_a_time(self.hub, str(self.name))

    def acknowledge(self, *offsets: int) -> None:
        """Acknowledge offsets in the ledger, as if they had been delivered."""
        ledger = WriterLedger(self.hub.backend, self.name, self.log.view)
        ledger.take_over()
        for offset in offsets:
            ledger.progress[self.partition].ack(offset, offset + 1)
        ledger.commit(plan=ledger.plan)

    def dead_letters(self) -> list[Message[Any]]:
        """Return all dead letters, oldest first."""
        where = Partition("lake.dead-letters", 0, 0)
        batches = self.dead.batches(0, 0)
        return [letter for batch in batches for letter in self.dead.messages(where, batch)]

    @property
    def mark(self) -> int:
        """The low-water mark: the first offset that is not acknowledged."""
        return self.ledger().progress[self.partition].mark

    @property
    def state(self) -> WriterStatus:
        """The stored state."""
        return self.ledger().state.state


def directory(path: Path) -> Path:
    """Create a directory, and return it."""
    path.mkdir(parents=True, exist_ok=True)
    return path
