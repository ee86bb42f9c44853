"""The log of a backend in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.backend.contract import (
    Amount,
    Bounds,
    Change,
    Chunk,
    OffsetSpan,
    StorageTopic,
    TimeBounds,
)
from tailrace.errors import Conflict, OutOfRange, Sealed, UnknownTopic
from tailrace.log.columns import from_records
from tailrace.log.record import OVERHEAD_BYTES, Encoded, Record, decode_records
from tailrace.message import Partition, Range
from tailrace.testing.memory.gate import Gate


class _Batch(NamedTuple):
    """The offsets of one append, and the least and the greatest timestamp of its records."""

    start: int
    end: int
    least_ms: int
    greatest_ms: int


class _Partition:
    """Records and their offsets, in order; `end` is after them and after any gap that follows."""

    __slots__ = ("appends", "batches", "created", "end", "offsets", "records", "sealed", "start")

    def __init__(self, created: int) -> None:
        self.created = created
        self.records: list[Record] = []
        self.offsets: list[int] = []
        self.batches: list[_Batch] = []
        self.start = 0
        self.end = 0
        self.appends = 0
        self.sealed = False

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.start, self.end, self.sealed)


class MemoryLog:
    """The log: for each storage topic a list of partitions."""

    def __init__(self, gate: Gate, gap_every: int) -> None:
        self._gate = gate
        self._gap_every = gap_every
        self._topics: dict[tuple[str, int], list[_Partition]] = {}

    def bounds(self, partition: Partition) -> Bounds:
        """Return the bounds of a partition."""
        with self._gate.entered():
            return self._partition(partition).bounds

    def bounds_of(self, storage: StorageTopic) -> list[Bounds]:
        """Return the bounds of every partition of a storage topic, at one instant."""
        with self._gate.entered():
            return [
                partition.bounds for partition in self._partitions(storage.topic, storage.storage)
            ]

    def read(
        self, partition: Partition, start: int, bytes_max: int, end: int | None = None
    ) -> Chunk:
        """Return records from `start`; a gap after the last record is a chunk of its own, without
        records."""
        with self._gate.entered():
            held = self._partition(partition)
            if not 0 <= start <= held.end:
                raise OutOfRange(str(partition), start, held.start, held.end)
            stop = max(start, held.end if end is None else min(end, held.end))
            first, last = bisect_left(held.offsets, start), bisect_left(held.offsets, stop)
            found = _fitting((held.records[i] for i in range(first, last)), bytes_max)
        return Chunk(from_records(found), found[-1].offset + 1 if found else stop)

    def amount(self, partition: Partition, start: int = 0, end: int | None = None) -> Amount:
        """Count the records between two offsets."""
        with self._gate.entered():
            held = self._partition(partition)
            first = bisect_left(held.offsets, start)
            last = len(held.offsets) if end is None else bisect_left(held.offsets, end)
            records = held.records[first:last]
        return Amount(len(records), sum(map(_size_bytes, records)))

    def offsets_between(self, partition: Partition, start_ms: int, end_ms: int) -> OffsetSpan:
        """Search the times of batches."""
        with self._gate.entered():
            held = self._partition(partition)
            found = [
                batch
                for batch in held.batches
                if start_ms < end_ms and batch.least_ms < end_ms and batch.greatest_ms >= start_ms
            ]
            if not found:
                return OffsetSpan(held.end, held.end)
            return OffsetSpan(found[0].start, found[-1].end)

    def time_bounds(self, partition: Partition) -> TimeBounds | None:
        """Return the least and the greatest time of batches."""
        with self._gate.entered():
            batches = self._partition(partition).batches
            if not batches:
                return None
            least = min(batch.least_ms for batch in batches)
            return TimeBounds(least, max(batch.greatest_ms for batch in batches))

    def whole_from(self, partition: Partition) -> int:
        """Return 0: nothing is compacted."""
        with self._gate.entered():
            self._partition(partition)
        return 0

    def remove_before(self, partition: Partition, offset: int) -> None:
        """Remove the appends that end at or below an offset, as retention does."""
        with self._gate.entered():
            held = self._partition(partition)
            while held.batches and held.batches[0].end <= offset:
                held.start = held.batches.pop(0).end
            gone = bisect_left(held.offsets, held.start)
            del held.offsets[:gone], held.records[:gone]

    def check_open(self, partition: Partition, since: int | None) -> None:
        """Raise unless the partition accepts appends.

        For this and all methods below, the caller holds the lock.
        """
        held = self._partition(partition)
        if since is not None and held.created > since:
            raise UnknownTopic(partition.topic, self._gate.name)
        if held.sealed:
            raise Sealed(partition.topic, partition.storage)

    def append(self, partition: Partition, encoded: Encoded) -> Range:
        """Append records at the next offsets, which are written into their bytes as in any log."""
        held = self._partition(partition)
        gap = int(self._gap_every > 0 and held.appends % self._gap_every == 0)
        start = held.end + gap
        end = start + encoded.count
        held.records += decode_records(encoded.stamp(start))
        held.offsets += range(start, end)
        times = encoded.first_timestamp, encoded.last_timestamp
        held.batches.append(_Batch(start, end, *times))
        held.end = end + gap
        held.appends += 1
        return Range(partition, start, encoded.count)

    def check(self, change: Change) -> None:
        """Raise unless the change's storage topics can be created, sealed and deleted."""
        for topic, storage, _ in change.create:
            if (topic, storage) in self._topics:
                raise Conflict(f"storage topic {topic}/{storage}", expected=0, version=1)
        for topic, storage, _ in change.seal + change.delete:
            self._partitions(topic, storage)

    def apply(self, change: Change, version: int) -> None:
        """Create, seal and delete storage topics at a version of the store."""
        for topic, storage, partitions in change.create:
            self._topics[topic, storage] = [_Partition(version) for _ in range(partitions)]
        for topic, storage, _ in change.seal:
            for partition in self._topics[topic, storage]:
                partition.sealed = True
        for topic, storage, _ in change.delete:
            del self._topics[topic, storage]

    def _partitions(self, topic: str, storage: int) -> list[_Partition]:
        held = self._topics.get((topic, storage))
        if held is None:
            raise UnknownTopic(topic, self._gate.name, {name for name, _ in self._topics})
        return held

    def _partition(self, partition: Partition) -> _Partition:
        held = self._partitions(partition.topic, partition.storage)
        if not 0 <= partition.number < len(held):
            raise UnknownTopic(str(partition), self._gate.name)
        return held[partition.number]


def _size_bytes(record: Record) -> int:
    return OVERHEAD_BYTES + len(record.key or b"") + len(record.value)


def _fitting(records: Iterable[Record], bytes_max: int) -> list[Record]:
    """Return the first records that fit into `bytes_max`: at least one, if there is one."""
    fitting: list[Record] = []
    size_bytes = 0
    for record in records:
        size_bytes += _size_bytes(record)
        if size_bytes > bytes_max and fitting:
            break
        fitting.append(record)
    return fitting
