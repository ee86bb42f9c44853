"""Reading: one record, a partition, or a whole topic so that order per key holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from operator import eq
from typing import Final, NamedTuple

import pyarrow as pa

from tailrace.backend.contract import Bounds, Log
from tailrace.errors import OutOfRange
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Partition, Range
from tailrace.topic.composite import Definition
from tailrace.topic.view import View

READ_BYTES: Final = 1 << 20
"""About how much one batch has."""


def record_at(log: Log, partition: Partition, offset: int) -> Record:
    """The record at an offset; `OutOfRange` says what is valid, and in a gap which offset is next."""
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
    return _batches(log, partition, start, bounds.end if end is None else min(end, bounds.end))


def _batches(log: Log, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
    while start < end:
        chunk = log.read(partition, start, READ_BYTES, end)
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
    """Where records that one commit appended, at `start` or behind, are: the first run of such
    records.

    `OutOfRange` when they are not there.
    """
    seen: deque[Record] = deque(maxlen=len(run))
    for record in records_from(log, partition, start):
        seen.append(record._replace(offset=0))
        if len(seen) == len(run) and seen[0] == run[0] and all(map(eq, seen, run)):
            return Range(partition, record.offset - len(run) + 1, len(run))
    raise OutOfRange(str(partition), start, *log.bounds(partition)[:2])


class Read(NamedTuple):
    """Some records of one partition, in order."""

    partition: Partition
    records: pa.RecordBatch


class LineageReader:
    """Reads all partitions of a topic, each only after those it follows, and remembers how far it
    is.

    It begins at the offsets of `starts`, elsewhere at the oldest record. Call `poll` again and again; it sees
    new records and new storage topics. It keeps nothing in the hub.
    """

    def __init__(self, view: View, starts: Mapping[Partition, int]) -> None:
        self._view = view
        self._next = dict(starts)
        self._finished: set[Partition] = set()
        self._oldest = 0

    def poll(self) -> Iterator[Read]:
        """What there is to read now, about `READ_BYTES` of each partition whose turn it is; never
        waits.

        Nothing at all means that everything up to now was read.
        """
        definition = self._view.refresh().definition
        for storage in range(self._oldest, definition.pointer + 1):
            yield from self._poll_storage(definition, storage)

    def _poll_storage(self, definition: Definition, storage: int) -> Iterator[Read]:
        topic = self._view.topic
        unfinished = 0
        all_bounds = self._view.backend.log.bounds_of(definition.storage_topic(topic, storage))
        for number, bounds in enumerate(all_bounds):
            partition = Partition(topic, storage, number)
            if partition in self._finished:
                continue
            if self._finished.issuperset(definition.follows(partition)):
                yield from self._poll_partition(partition, bounds)
            unfinished += partition not in self._finished
        if storage == self._oldest and not unfinished:
            self._oldest += 1

    def _poll_partition(self, partition: Partition, bounds: Bounds) -> Iterator[Read]:
        at = max(self._next.get(partition, 0), bounds.start)
        found = None
        while at < bounds.end and found is None:
            chunk = self._view.backend.log.read(partition, at, READ_BYTES, bounds.end)
            at = chunk.next_offset
            found = chunk.records if chunk.records.num_rows else None
        self._next[partition] = at
        if bounds.sealed and at >= bounds.end:
            self._finished.add(partition)
        if found is not None:
            yield Read(partition, found)
