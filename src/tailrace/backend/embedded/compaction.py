"""Compaction of a partition: full segments are rewritten with only the last record of every key.

The new files are written beside the old ones, as the segment's next generation, and synced. One
commit, under the partition's lock, makes the segment's row name them; then the old files are
unlinked. If interrupted anywhere, the partition is as before or as after, and the next process that
opens the hub or compacts the partition removes the files that no row names (`leftovers`). A full
segment does not change, so appends continue meanwhile. One process compacts a partition at a time:
it holds a name.

Readers that have the old files open continue to read them; a reader that finds a file missing reads
`hub.db` again. `first_offset` of the partition stays: dropped records become a gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import apsw

from tailrace.backend.capabilities import Compacted, SegmentInfo
from tailrace.backend.embedded.commit_point import CommitPoint, Parts
from tailrace.backend.embedded.committer import Committer
from tailrace.backend.embedded.extents import SegmentExtent
from tailrace.backend.embedded.leftovers import Leftovers, NumberedPartition
from tailrace.backend.embedded.log import EmbeddedLog
from tailrace.backend.embedded.snapshots import select
from tailrace.errors import DiskFull, Error, HubReplaced, OutcomeUnknown
from tailrace.log.columns import checked_positions
from tailrace.log.compaction import Offsets, keep, last_of_keys
from tailrace.log.index import BatchEntry
from tailrace.log.segment import Segment
from tailrace.message import Partition

BLOCK_ENTRIES = 4096
"""The number of entries of a block of a new index."""


class _Written(NamedTuple):
    """The files of a segment's next generation, on disk."""

    segment: Segment
    records: int
    bytes: int
    index_bytes: int


class Compactor:
    """Compacts partitions of one open hub."""

    def __init__(
        self,
        opened: Callable[[], Parts],
        log: EmbeddedLog,
        commit_point: CommitPoint,
        committer: Committer,
        leftovers: Leftovers,
        timeout_s: float,
    ) -> None:
        self._opened = opened
        self._log = log
        self._commit_point = commit_point
        self._committer = committer
        self._leftovers = leftovers
        self._timeout_s = timeout_s

    def compact(self, partition: Partition, below: Callable[[], int]) -> Compacted:
        """Compact every full segment whose offsets are all below the result of `below`.

        `below` is called again within the commit that drops records.

        `Busy` while another process compacts the partition. `CorruptBatch` at the first damaged
        batch: damaged data is never dropped. Segments without a record to drop, and the segments
        before an error, stay as they are.
        """
        total = Compacted()
        numbered = self._leftovers.numbered(partition)
        with self._leftovers.hold_compaction(numbered):
            self._leftovers.remove(numbered, time.monotonic() + self._timeout_s)
            for info in self._log.segments(partition):
                if info.active or info.end_offset > below():
                    break
                try:
                    total = total.plus(self._compact(numbered, info, below))
                except DiskFull:
                    # The reserve is released by now, so a commit that frees space has room.
                    total = total.plus(self._compact(numbered, info, below))
        return total

    def _compact(
        self, numbered: NumberedPartition, info: SegmentInfo, below: Callable[[], int]
    ) -> Compacted:
        unchanged = Compacted(1, 0, info.records, info.records, info.bytes, info.bytes)
        extents = self._log.extents(numbered.partition, info.base, info.end_offset)
        if info.generation or not extents:
            return unchanged
        (extent,) = extents
        survivors = last_of_keys(extent.read(extent.start, extent.end))
        if len(survivors) == extent.records:
            return unchanged
        segment = Segment(info.log_path.parent, info.base, self._opened().disk, info.generation + 1)
        try:
            written = self._write(extent, survivors, segment)
            swapped = self._swap(numbered, info, written, below)
        except (OutcomeUnknown, HubReplaced):
            raise
        except (Error, OSError) as error:
            segment.unlink()
            if isinstance(error, Error):
                raise
            raise self._commit_point.unavailable(error) from error
        if not swapped:  # Deleted meanwhile, or needed again.
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

    def _write(self, extent: SegmentExtent, survivors: Offsets, segment: Segment) -> _Written:
        """Write and sync the files of the next generation."""
        parts = self._opened()
        segment.create()
        parts.identity.check()
        last: BatchEntry | None = None
        waiting: list[BatchEntry] = []
        index_bytes = 0
        for entries, data, positions in extent.load(extent.start, extent.end):
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
        self._commit_point.sync((segment.sync, segment.sync_positions, segment.sync_index))
        parts.reach("compaction-synced")
        return _Written(
            segment, last.ordinal + last.records, last.position + last.bytes, index_bytes
        )

    def _swap(
        self,
        numbered: NumberedPartition,
        info: SegmentInfo,
        written: _Written,
        below: Callable[[], int],
    ) -> bool:
        """Make the segment's row name the new files; False if the segment was deleted, or if a
        consumer needs its records again."""
        partition, number = numbered
        generation = written.segment.generation
        row = (number, info.base)

        def make(writer: apsw.Connection) -> None:
            if info.end_offset > below():  # No other process can commit now.
                raise _SegmentChanged
            writer.execute(
                "UPDATE segments SET generation = ?, records = ?, bytes = ?, index_bytes = ?"
                " WHERE partition = ? AND base = ? AND generation = ?",
                (generation, *written[1:], *row, info.generation),
            )
            if writer.changes() != 1:
                raise _SegmentChanged
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
            self._commit_point.check_not_stopped()
            parts.locks.lock_partition(number, deadline, f"partition {partition}")
            try:
                parts.reach("compaction-locked")
                # Synced under every policy, because the old files are removed next.
                with parts.database.synced():
                    self._commit_point.change(make, deadline, happened)
            except _SegmentChanged:
                return False
            finally:
                parts.locks.unlock_partition(number)
        return True


class _SegmentChanged(Exception):
    """The segment has changed: its topic was deleted, or a consumer needs it again."""
