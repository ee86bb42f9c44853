"""Reading the log: finding the bytes of offsets in one read of `hub.db`, then reading the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw
import numpy as np
import pyarrow as pa

from tailrace.backend.capabilities import SegmentInfo
from tailrace.backend.contract import (
    Amount,
    Bounds,
    Chunk,
    OffsetSpan,
    StorageTopic,
    TimeBounds,
)
from tailrace.backend.embedded.damage import corrupt, hidden, missing_file
from tailrace.backend.embedded.extents import SegmentExtent
from tailrace.backend.embedded.layout import Layout
from tailrace.backend.embedded.lookup import (
    FoldedSegment,
    SegmentRow,
    folded_end,
    folded_segments,
    live_between,
    live_entries,
    live_rows,
    live_times,
    segment_after,
    segment_at,
)
from tailrace.backend.embedded.segments import Segments
from tailrace.backend.embedded.snapshots import Snapshots, select
from tailrace.backend.embedded.time_search import FoldedEntries
from tailrace.errors import BackendUnavailable, CorruptBatch, OutOfRange, UnknownTopic
from tailrace.log.columns import SCHEMA
from tailrace.log.index import ENTRY, BatchEntry, DamagedIndex
from tailrace.log.segment import Segment, parse_segment_name, segment_name
from tailrace.message import Partition

_EMPTY = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)
_READS_MAX = 8


class _Found(NamedTuple):
    """Neighbouring entries of one segment, and the offset to continue at if there are none."""

    segment: Segment | None
    entries: list[BatchEntry]
    next_offset: int


class EmbeddedLog:
    """See `tailrace.backend.contract.Log` and `tailrace.backend.capabilities.HasSegments`."""

    def __init__(
        self, layout: Layout, database: Callable[[], Snapshots], segments: Callable[[], Segments]
    ) -> None:
        self._layout = layout
        self._database = database
        self._segments = segments

    def bounds(self, partition: Partition) -> Bounds:
        """Return the bounds of a partition."""
        with self._database().snapshot() as connection:
            row = self._row(connection, partition)
        return Bounds(row[1], row[2], bool(row[3]))

    def bounds_of(self, storage: StorageTopic) -> list[Bounds]:
        """Return the bounds of every partition of a storage topic, at one instant."""
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
        """Return committed records from `start`, before `end`; see the contract."""
        missing = None
        for _ in range(_READS_MAX):
            try:
                with self._database().snapshot() as connection:
                    found = self._find(connection, partition, start, bytes_max, end)
                if found.segment is None:
                    return Chunk(_EMPTY, found.next_offset)
                return self._decode(partition, found, start, end)
            except FileNotFoundError as error:
                # The segment was replaced or removed after `hub.db` was read: read it again.
                missing = error
                self._segments().clear()
            except CorruptBatch:
                self._database().check_identity()
                raise
        assert missing is not None
        raise missing_file(partition, start, start, missing)

    def segments(self, partition: Partition) -> list[SegmentInfo]:
        """Return the segments of a partition, oldest first."""
        with self._database().snapshot() as connection:
            number, _, end_offset, _ = self._row(connection, partition)
            ((active, tail_bytes, tail_records),) = select(
                connection, "SELECT segment, bytes, records FROM partitions WHERE id = ?", (number,)
            )
            rows = select(
                connection,
                "SELECT base, end_offset, bytes, records, index_bytes, generation FROM segments"
                " WHERE partition = ? ORDER BY base",
                (number,),
            )
        directory = self._layout.partition(partition, number)
        found = []
        for base, end, size, records, index_bytes, generation in rows:
            path = directory / f"{segment_name(base, generation)}.log"
            if base == active:
                end, size, records = end_offset, tail_bytes, tail_records
            found.append(
                SegmentInfo(path, base, end, size, records, index_bytes, base == active, generation)
            )
        return found

    def amount(self, partition: Partition, start: int = 0, end: int | None = None) -> Amount:
        """Count records by the rows of whole segments, or by the index; see the contract."""
        found = Amount()
        if start == 0 and end is None:
            for info in self.segments(partition):
                found = found.plus(Amount(info.records, info.bytes))
            return found
        bounds = self.bounds(partition)
        start = max(start, bounds.start)
        end = bounds.end if end is None else min(end, bounds.end)
        for extent in self.extents(partition, start, end) if start < end else ():
            found = found.plus(extent.amount(start, end))
        return found

    def offsets_between(self, partition: Partition, start_ms: int, end_ms: int) -> OffsetSpan:
        """Search the times of batch entries; see the contract."""
        while True:
            with self._database().snapshot() as connection:
                number, first_offset, end_offset, _ = self._row(connection, partition)
                if start_ms >= end_ms:
                    return OffsetSpan(end_offset, end_offset)
                live = live_between(connection, number, start_ms, end_ms)
                folded = self._folded(connection, partition, number)
            try:
                span = folded.widen(live, start_ms, end_ms)
            except FileNotFoundError:
                continue  # A segment was compacted after `hub.db` was read: read it again.
            if span is None or span.end <= first_offset:
                return OffsetSpan(end_offset, end_offset)
            return OffsetSpan(max(span.start, first_offset), span.end)

    def time_bounds(self, partition: Partition) -> TimeBounds | None:
        """Return the least and the greatest time of batch entries; see the contract."""
        while True:
            with self._database().snapshot() as connection:
                number, *_ = self._row(connection, partition)
                live = live_times(connection, number)
                folded = self._folded(connection, partition, number)
            try:
                return folded.time_bounds(live)
            except FileNotFoundError:
                continue  # As above.

    def whole_from(self, partition: Partition) -> int:
        """Return the offset below which compaction has dropped records."""
        compacted = (info.end_offset for info in self.segments(partition) if info.generation)
        return max(compacted, default=0)

    def entries(
        self, partition: Partition, start: int = 0
    ) -> Iterator[tuple[Segment, list[BatchEntry]]]:
        """Yield all batch entries from an offset on, in runs of neighbours within one segment."""
        while True:
            try:
                with self._database().snapshot() as connection:
                    found = self._find(connection, partition, start, 2**20, None)
            except FileNotFoundError as error:
                if self._names(partition, Path(error.filename).name):
                    raise
                continue
            if found.segment is None:
                if found.next_offset == start:
                    return
                start = found.next_offset
                continue
            yield found.segment, found.entries
            start = found.entries[-1].base + found.entries[-1].records

    def extents(self, partition: Partition, start: int, end: int) -> list[SegmentExtent]:
        """Return the batches that hold committed records from `start` up to `end`.

        One extent for each segment that has any. A start beyond the end of the partition is
        `OutOfRange`.
        """
        extents: list[SegmentExtent] = []
        following: int | None = start
        while following is not None:
            at = following
            try:
                with self._database().snapshot() as connection:
                    extent, following = self._extent(connection, partition, at, end)
            except FileNotFoundError as error:
                if self._names(partition, Path(error.filename).name):
                    raise missing_file(partition, at, end - 1, error) from error
                continue
            if extent is not None:
                extents.append(extent)
        return extents

    def _extent(
        self, connection: apsw.Connection, partition: Partition, start: int, end: int
    ) -> tuple[SegmentExtent | None, int | None]:
        """Return the extent of the segment at `start`, if it has one, and the start of the next."""
        number, first_offset, end_offset, _ = self._row(connection, partition)
        if not 0 <= start <= end_offset:
            raise OutOfRange(str(partition), start, first_offset, end_offset)
        end = min(end, end_offset)
        row = segment_at(connection, number, start)
        if row is None or start >= end:
            return None, None
        segment = self._segments().get(partition, number, row.base, row.generation)
        rows = live_rows(connection, number, row.base, start, end)
        packed = np.array([(*row, 0) for row in rows], ENTRY).tobytes()
        if row.index_bytes:
            try:
                packed = segment.folded_packed(row.index_bytes, start, end) + packed
            except DamagedIndex as damage:
                hiding = folded_end(connection, number, row.base)
                raise hidden(partition, segment, start, hiding, damage) from damage
        following = segment_after(connection, number, row.base)
        at = None if following is None or following.base >= end else following.base
        if not packed:
            return None, at
        where = str(segment.directory)
        return SegmentExtent(partition, where, row.base, row.generation, packed), at

    def verify(
        self, partition: Partition
    ) -> Iterator[tuple[BatchEntry | None, CorruptBatch | None]]:
        """Yield every batch of the partition with its damage, if any; see the protocol."""
        start = 0
        while True:
            try:
                for segment, entries in self.entries(partition, start):
                    damaged = {damage.entry: damage for damage in segment.verify(entries)}
                    if damaged and not self._names(partition, segment.log_path.name):
                        break  # Compacted meanwhile: read `hub.db` again.
                    for entry in entries:
                        found = damaged.get(entry)
                        yield entry, None if found is None else corrupt(partition, segment, found)
                    start = entries[-1].base + entries[-1].records
                else:
                    return
            except CorruptBatch as hiding:
                yield None, hiding
                start = hiding.last + 1
            except FileNotFoundError as error:
                name = parse_segment_name(Path(error.filename).name)
                if name is None:
                    raise
                with self._database().snapshot() as connection:
                    number, *_ = self._row(connection, partition)
                    end = folded_end(connection, number, name[0])
                yield None, missing_file(partition, start, end - 1, error)
                start = end
            except BackendUnavailable:  # It is an OSError too, but not damage.
                raise
            except OSError as error:
                end = self.bounds(partition).end
                reason = f"it cannot be read: {error.strerror}"
                file = str(error.filename or "a file")
                yield None, CorruptBatch(str(partition), start, end - 1, file, reason)
                return

    def _folded(
        self, connection: apsw.Connection, partition: Partition, number: int
    ) -> FoldedEntries:
        """Return the folded entries of a partition. Searching them needs no connection."""

        def segment_of(row: FoldedSegment) -> Segment:
            return self._segments().get(partition, number, row.base, row.generation)

        segments = folded_segments(connection, number)
        return FoldedEntries(partition, segments, segment_of, partial(self._names, partition))

    def _names(self, partition: Partition, file: str) -> bool:
        """True if a file belongs to a segment that `hub.db` names now."""
        names = {parse_segment_name(info.log_path.name) for info in self.segments(partition)}
        return parse_segment_name(file) in names

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
        row = segment_at(connection, number, start)
        while row is not None and start < stop:
            segment = self._segments().get(partition, number, row.base, row.generation)
            entries = self._entries(connection, partition, number, row, segment, start, bytes_max)
            if entries:
                if entries[0].base >= stop:
                    return _Found(None, [], stop)
                return _Found(segment, _within(entries, bytes_max, stop), stop)
            row = segment_after(connection, number, row.base)
            start = start if row is None else max(start, row.base)
        return _Found(None, [], max(start, stop) if start < stop else start)

    def _entries(
        self,
        connection: apsw.Connection,
        partition: Partition,
        number: int,
        row: SegmentRow,
        segment: Segment,
        start: int,
        bytes_max: int,
    ) -> list[BatchEntry]:
        """Return entries of the segment from the one that holds `start`, or the next: folded, else
        live. They end with the one that reaches `bytes_max`."""
        if row.index_bytes:
            try:
                folded = segment.folded(row.index_bytes, start, bytes_max)
            except (DamagedIndex, FileNotFoundError) as damage:
                end = folded_end(connection, number, segment.base)
                if start < end:
                    raise hidden(partition, segment, start, end, damage) from damage
                folded = []
            if folded:
                return folded
        return live_entries(connection, number, row.base, start, bytes_max)

    def _decode(self, partition: Partition, found: _Found, start: int, end: int | None) -> Chunk:
        assert found.segment is not None
        records, damage = found.segment.read(found.entries)
        if records is None:
            assert damage is not None
            raise corrupt(partition, found.segment, damage)
        last = found.entries[-1]
        next_offset = last.base + last.records if damage is None else damage.entry.base
        if found.entries[0].base < start or (end is not None and next_offset > end):
            offsets = records.column("offset").to_numpy()
            begin = int(offsets.searchsorted(start))
            stop = len(offsets) if end is None else int(offsets.searchsorted(end))
            records = records.slice(begin, stop - begin)
            next_offset = next_offset if end is None else min(next_offset, end)
        return Chunk(records, next_offset)


def _within(entries: list[BatchEntry], bytes_max: int, stop: int) -> list[BatchEntry]:
    """Return the neighbours that fit, at least one; they end before a hole in the file and before
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
