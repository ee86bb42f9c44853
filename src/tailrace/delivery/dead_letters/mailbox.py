"""The dead letters of a topic that wait for an operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.delivery.dead_letters.letter import POSITION, WRITER, DeadLetter
from tailrace.errors import InvalidValue
from tailrace.log.columns import records_of
from tailrace.log.redelivered import ORIGIN
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.open_streams import held_storage_topics
from tailrace.topic.reading import batches_within
from tailrace.topic.view import View


def resolved_by(topic: str) -> str:
    """Return the consumer whose ledger has the letters that were redelivered or discarded."""
    return f"{topic}/resolved"


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The dead letters in a topic: of one writer, or of all consumers if `writer` is None.

    `view` is None if there is no topic, because no letter was ever written. `name` is the name that
    people write: ``lake/crm``, or ``lake``. `ledger` returns the progress of the letters of a
    partition that were redelivered or discarded; None for the ledger of `resolved_by`.
    """

    view: View | None
    name: str
    writer: str | None = None
    ledger: Callable[[Partition], Progress] | None = None

    def resolved(self, partition: Partition) -> Progress:
        """Return the progress of the letters of a partition that were redelivered or discarded."""
        assert self.view is not None, "there is a topic"
        if self.ledger is not None:
            return self.ledger(partition)
        resolver = resolved_by(self.view.topic)
        return Progress.load(self.view.backend.table, resolver, partition)

    def waiting(self) -> Iterator[DeadLetter]:
        """Yield the letters that were neither redelivered nor discarded, in order."""
        for partition, records in self.unresolved():
            for record in records_of(records):
                letter = DeadLetter(partition, record)
                if self.writer in (None, letter.writer):
                    yield letter

    def select(self, positions: Sequence[str]) -> list[DeadLetter]:
        """Return the waiting letters at these positions, in order.

        A position is that of the letter, its offset alone, or the position that the record had.
        `InvalidValue` for the first position that no waiting letter has.
        """
        wanted = set(positions)
        met: set[str] = set()
        found = []
        for letter in self.waiting():
            names = {letter.position, letter.origin, str(letter.record.offset)} & wanted
            if names:
                met |= names
                found.append(letter)
        for text in positions:
            if text not in met:
                raise InvalidValue(
                    "position",
                    text,
                    f"a pending dead letter of {self.name}",
                    f"list them: tailrace dlq {self.name} list",
                )
        return found

    def find(self, position: str) -> DeadLetter | None:
        """Return the waiting letter of the record at a position, which is also found after the
        record was redelivered; None if there is none."""
        wanted = pa.scalar(position.encode())
        for partition, records in self.unresolved():
            headers: Any = records["headers"]
            for name in (POSITION, ORIGIN):
                held: Any = pc.map_lookup(headers, query_key=pa.scalar(name), occurrence="first")
                row = pc.index(held, wanted).as_py()
                if row >= 0:
                    return DeadLetter(partition, records_of(records.slice(row, 1))[0])
        return None

    def count_by_writer(self) -> dict[str | None, int]:
        """Return the number of waiting letters of each writer; unreadable data counts as None.

        Counts the letters of all writers, also if the mailbox is that of one.
        """
        counts: Counter[str | None] = Counter()
        for _, records in self.unresolved():
            writers: Any = pc.map_lookup(
                records["headers"], query_key=pa.scalar(WRITER), occurrence="first"
            )
            for found in pc.value_counts(writers).to_pylist():
                name = found["values"]
                counts[name and name.decode("utf-8", "backslashreplace")] += found["counts"]
        return dict(counts)

    def unresolved(
        self, within: Container[Partition] | None = None
    ) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """Yield the records of the waiting letters of all writers, in order: of all partitions, or
        of some."""
        view = self.view
        if view is None:
            return
        log = view.backend.log
        held = list(held_storage_topics(log, view.topic, view.refresh().definition))
        for storage, bounds in reversed(held):
            for number, (start, end, _) in enumerate(bounds):
                partition = Partition(view.topic, storage.storage, number)
                if within is not None and partition not in within:
                    continue
                for first, after in self.resolved(partition).holes(end):
                    for records in batches_within(log, partition, max(first, start), after):
                        yield partition, records
