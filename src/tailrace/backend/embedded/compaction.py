"""Compaction of a partition: full segments are written anew with the last record of every key.

The new files are written beside the old, as the segment's next generation, and synced. One commit,
under the partition's lock, makes the row of the segment name them; the old files are unlinked after
it. Interrupted anywhere, the partition is as before or as after, and the files that no row names
are removed by whoever next opens the hub or compacts the partition (`strays`). A full segment does
not change, so appends go on meanwhile. One process compacts a partition at a time: it holds a name.

Readers that have the old files open read on; one that finds a file gone looks again. `first_offset`
of the partition stays: what was there is now a gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import apsw

from tailrace.backend.embedded.committer import Committer
from tailrace.backend.embedded.database import select
from tailrace.backend.embedded.extents import Extent, load_extent, read_extent
from tailrace.backend.embedded.publisher import Parts, Publisher
from tailrace.backend.embedded.reading import EmbeddedLog, SegmentInfo
from tailrace.backend.embedded.strays import Place, Strays
from tailrace.errors import DiskFull, Error, OutcomeUnknown
from tailrace.log.columns import checked_positions
from tailrace.log.compaction import Offsets, keep, last_of_keys
from tailrace.log.index import BatchEntry
from tailrace.log.segment import Segment
from tailrace.message import Partition

BLOCK_ENTRIES = 4096
"""So many entries make a block of a new index."""


class Compacted(NamedTuple):
    """What a compaction looked at, and what is left of it. `segments` counts all that are wholly
    below the mark, `rewritten` those that became smaller."""

    segments: int = 0
    rewritten: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def plus(self, other: Compacted) -> Compacted:
        """The sum of two."""
        return Compacted(*map(sum, zip(self, other, strict=True)))


class _Written(NamedTuple):
    """The next generation of a segment, on disk."""

    segment: Segment
    records: int
    bytes: int
    index_bytes: int


class Compactor:
    """Compacts partitions of one opened hub."""

    def __init__(
        self,
        opened: Callable[[], Parts],
        log: EmbeddedLog,
        publisher: Publisher,
        committer: Committer,
        strays: Strays,
        timeout_s: float,
    ) -> None:
        self._opened = opened
        self._log = log
        self._publisher = publisher
        self._committer = committer
        self._strays = strays
        self._timeout_s = timeout_s

    def compact(self, partition: Partition, below: Callable[[], int]) -> Compacted:
        """Compact every full segment whose offsets are all below what `below` says, also at the
        instant of the commit that drops them.

        `Busy` when another does it. `CorruptBatch` at the first damaged batch: nothing damaged is
        ever dropped. Segments with nothing to drop, and those before an error, stay as they are.
        """
        total = Compacted()
        place = self._strays.place(partition)
        with self._strays.hold_compaction(place):
            self._strays.remove(place, time.monotonic() + self._timeout_s)
            for info in self._log.segments(partition):
                if info.active or info.end_offset > below():
                    break
                try:
                    total = total.plus(self._compact(place, info, below))
                except DiskFull:
                    # By now the reserve is given up, and its room is there for what makes room.
                    total = total.plus(self._compact(place, info, below))
        return total

    def _compact(self, place: Place, info: SegmentInfo, below: Callable[[], int]) -> Compacted:
        unchanged = Compacted(1, 0, info.records, info.records, info.bytes, info.bytes)
        extents = self._log.extents(place.partition, info.base, info.end_offset)
        if info.generation or not extents:
            return unchanged
        (extent,) = extents
        survivors = last_of_keys(read_extent(extent, extent.start, extent.end))
        if len(survivors) == extent.records:
            return unchanged
        segment = Segment(info.log_path.parent, info.base, self._opened().disk, info.generation + 1)
        try:
            written = self._write(extent, survivors, segment)
            swapped = self._swap(place, info, written, below)
        except OutcomeUnknown:
            raise
        except (Error, OSError) as error:
            segment.unlink()
            if isinstance(error, Error):
                raise
            raise self._publisher.unavailable(error) from error
        if not swapped:  # deleted meanwhile, or wanted again
            segment.unlink()
            return unchanged
        parts = self._opened()
        parts.reach("compaction-swapped")
        Segment(segment.directory, info.base, parts.disk, info.generation).unlink()
        parts.segments.clear()
        parts.reach("compaction-unlinked")
        return unchanged._replace(
            rewritten=1, records_after=written.records, bytes_after=written.bytes
        )

    def _write(self, extent: Extent, survivors: Offsets, segment: Segment) -> _Written:
        """Write and sync the files of the next generation."""
        parts = self._opened()
        segment.create()
        last: BatchEntry | None = None
        waiting: list[BatchEntry] = []
        index_bytes = 0
        for entries, data, positions in load_extent(extent, extent.start, extent.end):
            appended_ms = max(entry.appended_ms for entry in entries)
            kept = keep(data, checked_positions(data, positions), survivors, appended_ms, last)
            if kept is None:
                continue
            segment.write(kept.span, kept.data, kept.positions)
            last = kept.entries[-1]
            waiting += kept.entries
            while len(waiting) > BLOCK_ENTRIES:
                index_bytes = segment.fold(waiting[:BLOCK_ENTRIES], index_bytes)
                del waiting[:BLOCK_ENTRIES]
        assert last is not None, "every key has a last record"
        index_bytes = segment.fold(waiting, index_bytes)
        parts.reach("compaction-written")
        self._publisher.sync((segment.sync, segment.sync_positions, segment.sync_index))
        parts.reach("compaction-synced")
        return _Written(
            segment, last.ordinal + last.records, last.position + last.bytes, index_bytes
        )

    def _swap(
        self, place: Place, info: SegmentInfo, written: _Written, below: Callable[[], int]
    ) -> bool:
        """Make the row of the segment name the new files; False when it is no more, or somebody
        needs its records again."""
        partition, number = place
        generation = written.segment.generation
        row = (number, info.base)

        def make(writer: apsw.Connection) -> None:
            if info.end_offset > below():  # Nobody else can commit now.
                raise _Gone
            writer.execute(
                "UPDATE segments SET generation = ?, records = ?, bytes = ?, index_bytes = ?"
                " WHERE partition = ? AND base = ? AND generation = ?",
                (generation, *written[1:], *row, info.generation),
            )
            if writer.changes() != 1:
                raise _Gone
            writer.execute("DELETE FROM entries WHERE partition = ? AND segment = ?", row)
            writer.execute(
                "UPDATE partitions SET entries = entries - ? WHERE id = ?",
                (writer.changes(), number),
            )

        def happened(writer: apsw.Connection) -> bool:
            sql = "SELECT generation FROM segments WHERE partition = ? AND base = ?"
            return select(writer, sql, row) == [(generation,)]

        deadline = time.monotonic() + self._timeout_s
        with self._committer.leading:
            parts = self._opened()
            self._publisher.check_going()
            parts.locks.lock_partition(number, deadline, f"partition {partition}")
            try:
                parts.reach("compaction-locked")
                # Synced whatever the policy: the files that the row named until now go next.
                with parts.database.synced():
                    self._publisher.change(make, deadline, happened)
            except _Gone:
                return False
            finally:
                parts.locks.unlock_partition(number)
        return True


class _Gone(Exception):
    """The segment is no longer as it was: its topic was deleted, or it is needed again."""
