"""Reads of one record, of a partition, or of a whole topic in order per key."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from operator import eq
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tailrace.backend.contract import Log
from tailrace.backend.pickling import Unpicklable
from tailrace.errors import OutOfRange
from tailrace.log.columns import records_of
from tailrace.log.control import messages_of
from tailrace.log.record import Record
from tailrace.message import Partition, Range
from tailrace.topic.lineage import Stream
from tailrace.topic.open_streams import find_open_streams, held_streams
from tailrace.topic.view import View

READ_BYTES: Final = 1 << 20
"""The approximate number of bytes of one batch."""


def record_at(log: Log, partition: Partition, offset: int) -> Record:
    """Return the record at an offset; `OutOfRange` has the valid range, or in a gap the next
    one."""
    bounds = log.bounds(partition)
    if not bounds.start <= offset < bounds.end:
        raise OutOfRange(str(partition), offset, bounds.start, bounds.end)
    at = offset
    while at < bounds.end:
        chunk = log.read(partition, at, 1, bounds.end)
        if chunk.records.num_rows:
            record = records_of(chunk.records.slice(0, 1))[0]
            if record.offset == offset:
                return record
            raise OutOfRange(str(partition), offset, bounds.start, bounds.end, record.offset)
        at = chunk.next_offset
    raise OutOfRange(str(partition), offset, bounds.start, offset)


def batches_between(
    log: Log, partition: Partition, start: int, end: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the records from `start` up to `end`, or up to the end offset of this call."""
    bounds = log.bounds(partition)
    if not 0 <= start <= bounds.end:
        raise OutOfRange(str(partition), start, bounds.start, bounds.end)
    return batches_within(
        log, partition, start, bounds.end if end is None else min(end, bounds.end)
    )


def batches_within(
    log: Log, partition: Partition, start: int, end: int, bytes_max: int = READ_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the records between two offsets of the partition, about `bytes_max` at a time."""
    while start < end:
        chunk = log.read(partition, start, bytes_max, end)
        if chunk.records.num_rows:
            yield chunk.records
        if chunk.next_offset <= start:
            return
        start = chunk.next_offset


def records_from(log: Log, partition: Partition, start: int) -> Iterator[Record]:
    """Yield the records from `start` up to the end offset of this call, one by one."""
    for batch in batches_between(log, partition, start, None):
        yield from records_of(batch)


def find_run(log: Log, partition: Partition, start: int, run: Sequence[Record]) -> Range:
    """Find the records that one commit appended, at `start` or later: the first such run.

    The offsets of the given records are ignored. `OutOfRange` if the run is not found.
    """
    wanted = [record[1:] for record in run]
    seen: deque[tuple[Any, ...]] = deque(maxlen=len(run))
    for record in records_from(log, partition, start):
        seen.append(record[1:])
        if len(seen) == len(run) and seen[0] == wanted[0] and all(map(eq, seen, wanted)):
            return Range(partition, record.offset - len(run) + 1, len(run))
    raise OutOfRange(str(partition), start, *log.bounds(partition)[:2])


class Read(NamedTuple):
    """Some records of one partition, in order."""

    partition: Partition
    records: pa.RecordBatch


class LineageReader(Unpicklable):
    """Reads all partitions of a topic, each after those it follows, and remembers its offsets.

    It begins at the offsets of `starts`, elsewhere at the oldest record. Call `poll` repeatedly; it
    returns new records, also those of new storage topics, and control records only with `control`.
    It stores nothing in the hub.
    """

    def __init__(
        self, view: View, starts: Mapping[Partition, int], *, control: bool = False
    ) -> None:
        self._view = view
        self._control = control
        self._next = dict(starts)
        self._oldest = 0

    def poll(self) -> list[Read]:
        """Return about `READ_BYTES` of each open partition. Never waits.

        An empty result means that everything up to now was read. `OutOfRange` if a start is beyond
        the end of its partition. After an error, the next `poll` returns what this one would have.
        """
        log = self._view.backend.log
        while open_partitions := self._open_partitions():
            chunks = {
                where: log.read(where, self._next[where], READ_BYTES, end)
                for where, end in open_partitions
            }
            # Offsets move only now: after a read that raised, the earlier reads would be lost.
            self._next |= {where: chunk.next_offset for where, chunk in chunks.items()}
            reads = [Read(where, self._chosen(chunk.records)) for where, chunk in chunks.items()]
            if found := [read for read in reads if read.records.num_rows]:
                return found
        return []

    def _chosen(self, records: pa.RecordBatch) -> pa.RecordBatch:
        return records if self._control else messages_of(records)

    def _open_partitions(self) -> list[tuple[Partition, int]]:
        """Return the partitions that follow only finished ones and have more to read, with their
        ends."""
        definition, topic = self._view.refresh().definition, self._view.topic
        held = held_streams(self._view.backend.log, topic, definition, self._oldest)
        at: dict[Stream, int] = {}
        for stream, (start, end, _) in held.items():
            where = Partition(topic, *stream)
            at[stream] = self._next[where] = max(start, self._next.get(where, 0))
            if at[stream] > end:
                raise OutOfRange(str(where), at[stream], start, end)
        drained = {stream: at[stream] >= bounds.end for stream, bounds in held.items()}
        found = find_open_streams(definition, held, lambda stream, _: drained[stream], self._oldest)
        self._oldest = found.oldest
        return [
            (Partition(topic, *stream), held[stream].end)
            for stream in found.open
            if not drained[stream]
        ]
