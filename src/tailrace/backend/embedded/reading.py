"""Reading the log: which bytes are which offsets, in one look at `hub.db`, then the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pyarrow as pa

from tailrace.backend.contract import Bounds, Chunk, StorageTopic
from tailrace.backend.embedded.database import Database, select
from tailrace.backend.embedded.layout import Layout
from tailrace.backend.embedded.segments import Segments
from tailrace.errors import BackendUnavailable, CorruptBatch, OutOfRange, UnknownTopic
from tailrace.log.columns import SCHEMA
from tailrace.log.index import BatchEntry, DamagedIndex
from tailrace.log.segment import Damage, Segment, segment_name
from tailrace.message import Partition

_ENTRIES_MAX = 4096
_EMPTY = SCHEMA.empty_table().combine_chunks().to_batches() or [
    pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in SCHEMA], schema=SCHEMA)
]
_LOOKS_MAX = 8


class SegmentInfo(NamedTuple):
    """A segment as `hub.db` has it. `end_offset` of the active one is the partition's end."""

    log_path: Path
    base: int
    end_offset: int
    bytes: int
    records: int
    index_bytes: int
    active: bool


class _Found(NamedTuple):
    """Neighbouring entries of one segment, and where the reader goes on if there are none."""

    segment: Segment | None
    entries: list[BatchEntry]
    next_offset: int


class EmbeddedLog:
    """See `tailrace.backend.contract.Log`; and what is under it, for operators."""

    def __init__(
        self, layout: Layout, database: Callable[[], Database], segments: Callable[[], Segments]
    ) -> None:
        self._layout = layout
        self._database = database
        self._segments = segments

    def bounds(self, partition: Partition) -> Bounds:
        """What the partition holds now."""
        with self._database().look() as connection:
            row = self._row(connection, partition)
        return Bounds(row[1], row[2], bool(row[3]))

    def bounds_of(self, storage: StorageTopic) -> list[Bounds]:
        """`bounds` of every partition of a storage topic, at one instant."""
        rows = self._database().rows(
            "SELECT first_offset, end_offset, sealed FROM partitions"
            " WHERE topic = ? AND storage = ? ORDER BY number",
            (storage.topic, storage.storage),
        )
        if not rows:
            raise UnknownTopic(f"{storage.topic}/{storage.storage}", str(self._layout.directory))
        return [Bounds(first, end, bool(sealed)) for first, end, sealed in rows]

    def read(
        self, partition: Partition, start: int, bytes_max: int, end: int | None = None
    ) -> Chunk:
        """Committed records from `start` on, before `end`; see the contract."""
        missing = None
        for _ in range(_LOOKS_MAX):
            try:
                with self._database().look() as connection:
                    found = self._find(connection, partition, start, bytes_max, end)
                if found.segment is None:
                    return Chunk(_EMPTY[0], found.next_offset)
                return self._decode(partition, found, start, end)
            except FileNotFoundError as error:
                # The segment was replaced or expired between the look and the read: look again.
                missing = error
                self._segments().clear()
        assert missing is not None
        raise _gone(partition, start, start, missing)

    def segments(self, partition: Partition) -> list[SegmentInfo]:
        """The segments of a partition, oldest first."""
        with self._database().look() as connection:
            number, _, end_offset, _ = self._row(connection, partition)
            ((active, tail_bytes, tail_records),) = select(
                connection, "SELECT segment, bytes, records FROM partitions WHERE id = ?", (number,)
            )
            rows = select(
                connection,
                "SELECT base, end_offset, bytes, records, index_bytes FROM segments"
                " WHERE partition = ? ORDER BY base",
                (number,),
            )
        directory = self._layout.partition(partition, number)
        found = []
        for base, end, size, records, index_bytes in rows:
            path = directory / f"{segment_name(base)}.log"
            if base == active:
                end, size, records = end_offset, tail_bytes, tail_records
            info = SegmentInfo(path, base, end, size, records, index_bytes, base == active)
            found.append(info)
        return found

    def entries(
        self, partition: Partition, start: int = 0
    ) -> Iterator[tuple[Segment, list[BatchEntry]]]:
        """All batch entries from an offset on, in runs of neighbours within one segment."""
        while True:
            with self._database().look() as connection:
                found = self._find(connection, partition, start, 2**20, None)
            if found.segment is None:
                if found.next_offset == start:
                    return
                start = found.next_offset
                continue
            yield found.segment, found.entries
            start = found.entries[-1].base + found.entries[-1].records

    def verify(
        self, partition: Partition
    ) -> Iterator[tuple[BatchEntry | None, CorruptBatch | None]]:
        """Every batch of the partition with its damage, if any.

        Damage without a batch is that of an index, which hides what batches there were, or of a
        file that cannot be read, which ends it.
        """
        start = 0
        while True:
            try:
                for segment, entries in self.entries(partition, start):
                    damaged = {damage.entry: damage for damage in segment.verify(entries)}
                    for entry in entries:
                        found = damaged.get(entry)
                        yield entry, None if found is None else _corrupt(partition, segment, found)
                    start = entries[-1].base + entries[-1].records
                return
            except CorruptBatch as hidden:
                yield None, hidden
                start = hidden.last + 1
            except FileNotFoundError as error:
                with self._database().look() as connection:
                    number, *_ = self._row(connection, partition)
                    base = int(Path(error.filename).stem)
                    end = _folded_end(connection, number, base)
                yield None, _gone(partition, start, end - 1, error)
                start = end
            except BackendUnavailable:  # which is an OSError too, and no damage
                raise
            except OSError as error:
                end = self.bounds(partition).end
                reason = f"it cannot be read: {error.strerror}"
                file = str(error.filename or "a file")
                yield None, CorruptBatch(str(partition), start, end - 1, file, reason)
                return

    def _row(self, connection: apsw.Connection, partition: Partition) -> tuple[int, int, int, int]:
        row: tuple[int, int, int, int] | None = connection.execute(
            "SELECT id, first_offset, end_offset, sealed FROM partitions"
            " WHERE topic = ? AND storage = ? AND number = ?",
            partition,
        ).fetchone()
        if row is None:
            raise UnknownTopic(str(partition), str(self._layout.directory))
        return row

    def _find(
        self,
        connection: apsw.Connection,
        partition: Partition,
        start: int,
        bytes_max: int,
        end: int | None,
    ) -> _Found:
        number, first_offset, end_offset, _ = self._row(connection, partition)
        if start > end_offset or start < 0:
            raise OutOfRange(str(partition), start, first_offset, end_offset)
        stop = end_offset if end is None else min(end, end_offset)
        start = max(start, first_offset)
        base = _segment_at(connection, number, start)
        while base is not None and start < stop:
            segment = self._segments().get(partition, number, base)
            entries = self._entries(connection, partition, number, segment, start, bytes_max)
            if entries:
                if entries[0].base >= stop:
                    return _Found(None, [], stop)
                return _Found(segment, _within(entries, bytes_max, stop), stop)
            base = _segment_after(connection, number, base)
            start = start if base is None else max(start, base)
        return _Found(None, [], max(start, stop) if start < stop else start)

    def _entries(
        self,
        connection: apsw.Connection,
        partition: Partition,
        number: int,
        segment: Segment,
        start: int,
        bytes_max: int,
    ) -> list[BatchEntry]:
        """Entries of the segment from the one that holds `start`, or the next, on: folded, else
        live. They end with the one that reaches `bytes_max`."""
        ((index_bytes,),) = select(
            connection,
            "SELECT index_bytes FROM segments WHERE partition = ? AND base = ?",
            (number, segment.base),
        )
        if index_bytes:
            try:
                folded = segment.folded(index_bytes, start, bytes_max)
            except (DamagedIndex, FileNotFoundError) as damage:
                end = _folded_end(connection, number, segment.base)
                if start < end:
                    raise _hidden(partition, segment, start, end, damage) from damage
                folded = []
            if folded:
                return folded
        rows = connection.execute(
            "SELECT base, records, ordinal, position, bytes, first_timestamp, last_timestamp,"
            " appended_ms, crc FROM entries WHERE partition = ?1 AND segment = ?3 AND base >="
            " coalesce((SELECT max(base) FROM entries WHERE partition = ?1 AND base <= ?2), 0)"
            " AND base + records > ?2 ORDER BY base LIMIT ?4",
            (number, start, segment.base, _ENTRIES_MAX),
        )
        entries: list[BatchEntry] = []
        size = 0
        for row in rows:
            entries.append(BatchEntry(*row))
            size += entries[-1].bytes
            if size >= bytes_max:
                break
        rows.close()
        return entries

    def _decode(self, partition: Partition, found: _Found, start: int, end: int | None) -> Chunk:
        assert found.segment is not None
        records, damage = found.segment.read(found.entries)
        if records is None:
            assert damage is not None
            raise _corrupt(partition, found.segment, damage)
        last = found.entries[-1]
        next_offset = last.base + last.records if damage is None else damage.entry.base
        if found.entries[0].base < start or (end is not None and next_offset > end):
            offsets = records.column("offset").to_numpy()
            begin = int(offsets.searchsorted(start))
            stop = len(offsets) if end is None else int(offsets.searchsorted(end))
            records = records.slice(begin, stop - begin)
            next_offset = next_offset if end is None else min(next_offset, end)
        return Chunk(records, next_offset)


def _folded_end(connection: apsw.Connection, number: int, base: int) -> int:
    """The first offset of a segment, or after it, whose entry is not in its index."""
    ((end,),) = select(
        connection,
        "SELECT coalesce((SELECT min(base) FROM entries WHERE partition = ?1 AND segment = ?2),"
        " (SELECT end_offset FROM segments WHERE partition = ?1 AND base = ?2),"
        " (SELECT end_offset FROM partitions WHERE id = ?1))",
        (number, base),
    )
    return int(end)


def _segment_at(connection: apsw.Connection, number: int, offset: int) -> int | None:
    ((base,),) = select(
        connection,
        "SELECT coalesce((SELECT max(base) FROM segments WHERE partition = ?1 AND base <= ?2),"
        " (SELECT min(base) FROM segments WHERE partition = ?1))",
        (number, offset),
    )
    found: int | None = base
    return found


def _segment_after(connection: apsw.Connection, number: int, base: int) -> int | None:
    ((following,),) = select(
        connection,
        "SELECT min(base) FROM segments WHERE partition = ? AND base > ?",
        (number, base),
    )
    found: int | None = following
    return found


def _within(entries: list[BatchEntry], bytes_max: int, stop: int) -> list[BatchEntry]:
    """As many neighbours as fit, at least one; they end before a hole in the file and before
    `stop`."""
    size = entries[0].bytes
    for count, entry in enumerate(entries[1:], start=1):
        size += entry.bytes
        before = entries[count - 1]
        if (
            size > bytes_max
            or entry.base >= stop
            or before.position + before.bytes != entry.position
        ):
            return entries[:count]
    return entries


def _hidden(
    partition: Partition,
    segment: Segment,
    start: int,
    end: int,
    damage: DamagedIndex | FileNotFoundError,
) -> CorruptBatch | FileNotFoundError:
    """What to raise for an index that no longer says which bytes are `start` and on."""
    if isinstance(damage, FileNotFoundError):
        return damage
    if damage.next_offset is not None and start < damage.next_offset:
        end = damage.next_offset
    file = str(segment.log_path.with_suffix(".index"))
    return CorruptBatch(str(partition), start, end - 1, file, damage.reason)


def _gone(partition: Partition, first: int, last: int, error: FileNotFoundError) -> CorruptBatch:
    return CorruptBatch(str(partition), first, last, str(error.filename), "the file is gone")


def _corrupt(partition: Partition, segment: Segment, damage: Damage) -> CorruptBatch:
    entry = damage.entry
    return CorruptBatch(
        str(partition),
        entry.base,
        entry.base + entry.records - 1,
        str(segment.log_path),
        damage.reason,
    )
