"""Reading: one record, a partition, or a whole topic so that order per key holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from operator import eq
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tailrace.backend.contract import Log
from tailrace.errors import OutOfRange
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Partition, Range
from tailrace.topic.lineage import Stream
from tailrace.topic.open_streams import held_streams, turns
from tailrace.topic.view import View

READ_BYTES: Final = 1 << 20
"""About how much one batch has."""


def record_at(log: Log, partition: Partition, offset: int) -> Record:
    """The record at an offset; `OutOfRange` says what is valid, or in a gap what is next."""
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
    """The records from `start` up to `end`, or up to what is there at this call."""
    bounds = log.bounds(partition)
    if not 0 <= start <= bounds.end:
        raise OutOfRange(str(partition), start, bounds.start, bounds.end)
    return batches_within(
        log, partition, start, bounds.end if end is None else min(end, bounds.end)
    )


def batches_within(
    log: Log, partition: Partition, start: int, end: int, bytes_max: int = READ_BYTES
) -> Iterator[pa.RecordBatch]:
    """The records between two offsets that the partition has, about `bytes_max` at a time."""
    while start < end:
        chunk = log.read(partition, start, bytes_max, end)
        if chunk.records.num_rows:
            yield chunk.records
        if chunk.next_offset <= start:
            return
        start = chunk.next_offset


def records_from(log: Log, partition: Partition, start: int) -> Iterator[Record]:
    """The records from `start` up to what is there at this call, one by one."""
    for batch in batches_between(log, partition, start, None):
        yield from records_of(batch)


def find_run(log: Log, partition: Partition, start: int, run: Sequence[Record]) -> Range:
    """Where records are that one commit appended, at `start` or behind it: the first such run.

    The offsets that the records have do not matter. `OutOfRange` when they are not there.
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


class LineageReader:
    """Reads all partitions of a topic, each after those it follows, and remembers how far it is.

    It begins at the offsets of `starts`, elsewhere at the oldest record. Call `poll` again and
    again; it sees new records and new storage topics. It keeps nothing in the hub.
    """

    def __init__(self, view: View, starts: Mapping[Partition, int]) -> None:
        self._view = view
        self._next = dict(starts)
        self._oldest = 0

    def poll(self) -> list[Read]:
        """About `READ_BYTES` of each partition whose turn it is. Never waits.

        Nothing means that everything up to now was read. `OutOfRange` when it was to begin beyond
        the end of a partition. After an error, `poll` again gives what this one would have given.
        """
        log = self._view.backend.log
        while open_partitions := self._open_partitions():
            chunks = {
                where: log.read(where, self._next[where], READ_BYTES, end)
                for where, end in open_partitions
            }
            # Only now, because a read that raised would else lose what those before it gave.
            self._next |= {where: chunk.next_offset for where, chunk in chunks.items()}
            reads = [Read(where, chunk.records) for where, chunk in chunks.items()]
            if found := [read for read in reads if read.records.num_rows]:
                return found
        return []

    def _open_partitions(self) -> list[tuple[Partition, int]]:
        """The partitions that follow only finished ones and have more to read, with their ends."""
        definition, topic = self._view.refresh().definition, self._view.topic
        held = held_streams(self._view.backend.log, topic, definition, self._oldest)
        at: dict[Stream, int] = {}
        for stream, (start, end, _) in held.items():
            where = Partition(topic, *stream)
            at[stream] = self._next[where] = max(start, self._next.get(where, 0))
            if at[stream] > end:
                raise OutOfRange(str(where), at[stream], start, end)
        drained = {stream: at[stream] >= bounds.end for stream, bounds in held.items()}
        found = turns(definition, held, lambda stream, _: drained[stream], self._oldest)
        self._oldest = found.oldest
        return [
            (Partition(topic, *stream), held[stream].end)
            for stream in found.open
            if not drained[stream]
        ]
