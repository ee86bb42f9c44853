"""The log of a backend in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from tailrace.backend.contract import Bounds, Change, Chunk, StorageTopic
from tailrace.errors import Conflict, OutOfRange, Sealed, UnknownTopic
from tailrace.log.columns import from_records
from tailrace.log.record import OVERHEAD_BYTES, Encoded, Record, decode_records
from tailrace.message import Partition, Range
from tailrace.testing.memory.gate import Gate


class _Partition:
    """Records and their offsets, in order; `end` is beyond them and beyond any gap behind them."""

    __slots__ = ("appends", "created", "end", "offsets", "records", "sealed")

    def __init__(self, created: int) -> None:
        self.created = created
        self.records: list[Record] = []
        self.offsets: list[int] = []
        self.end = 0
        self.appends = 0
        self.sealed = False

    @property
    def bounds(self) -> Bounds:
        return Bounds(0, self.end, self.sealed)


class MemoryLog:
    """The log: for each storage topic a list of partitions."""

    def __init__(self, gate: Gate, gap_every: int) -> None:
        self._gate = gate
        self._gap_every = gap_every
        self._topics: dict[tuple[str, int], list[_Partition]] = {}

    def bounds(self, partition: Partition) -> Bounds:
        """What the partition holds now."""
        with self._gate.entered():
            return self._partition(partition).bounds

    def bounds_of(self, storage: StorageTopic) -> list[Bounds]:
        """What every partition of a storage topic holds, at one instant."""
        with self._gate.entered():
            return [
                partition.bounds for partition in self._partitions(storage.topic, storage.storage)
            ]

    def read(
        self, partition: Partition, start: int, bytes_max: int, end: int | None = None
    ) -> Chunk:
        """Records from `start` on; a gap behind the last one is a chunk of its own, without any."""
        with self._gate.entered():
            held = self._partition(partition)
            if not 0 <= start <= held.end:
                raise OutOfRange(str(partition), start, 0, held.end)
            stop = max(start, held.end if end is None else min(end, held.end))
            first, last = bisect_left(held.offsets, start), bisect_left(held.offsets, stop)
            found = _fitting((held.records[i] for i in range(first, last)), bytes_max)
        return Chunk(from_records(found), found[-1].offset + 1 if found else stop)

    def check_open(self, partition: Partition, since: int | None) -> None:
        """Raise unless it takes appends. Within the gate, as all methods that follow."""
        held = self._partition(partition)
        if since is not None and held.created > since:
            raise UnknownTopic(partition.topic, self._gate.name)
        if held.sealed:
            raise Sealed(partition.topic, partition.storage)

    def append(self, partition: Partition, encoded: Encoded) -> Range:
        """Give the records the next offsets, written into their bytes as any log does."""
        held = self._partition(partition)
        gap = int(self._gap_every > 0 and held.appends % self._gap_every == 0)
        start = held.end + gap
        end = start + encoded.count
        held.records += decode_records(encoded.stamp(start))
        held.offsets += range(start, end)
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
        """Create, seal and delete, as of a version of the store."""
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


def _fitting(records: Iterable[Record], bytes_max: int) -> list[Record]:
    """The first records, as many as fit into `bytes_max`: one at least, if there is one."""
    fitting: list[Record] = []
    size_bytes = 0
    for record in records:
        size_bytes += OVERHEAD_BYTES + len(record.key or b"") + len(record.value)
        if size_bytes > bytes_max and fitting:
            break
        fitting.append(record)
    return fitting
