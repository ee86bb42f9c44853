"""The segment and batch entries that hold an offset, by the rows of `hub.db` at one instant.

The bytes of these entries must be read from a segment of the generation that the same read of
`hub.db` returned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw

from tailrace.backend.contract import OffsetSpan, TimeBounds
from tailrace.backend.embedded.snapshots import select
from tailrace.log.index import BatchEntry

ENTRIES_MAX = 4096
"""The number of entries that one query reads from `hub.db`."""

_COLUMNS = "base, generation, end_offset, index_bytes"
_ENTRY_COLUMNS = (
    "base, records, ordinal, position, bytes, first_timestamp, last_timestamp, appended_ms, crc"
)


class SegmentRow(NamedTuple):
    """A segment as a reader needs it. `end_offset` is None while the segment takes appends."""

    base: int
    generation: int
    end_offset: int | None
    index_bytes: int


class FoldedSegment(NamedTuple):
    """A segment with folded entries. The active segment ends where the partition ends."""

    base: int
    generation: int
    end_offset: int
    index_bytes: int


def segment_at(connection: apsw.Connection, number: int, offset: int) -> SegmentRow | None:
    """Return the segment that would hold an offset: the last that begins at or before it, else the
    first."""
    return _one(
        connection,
        f"SELECT {_COLUMNS} FROM segments WHERE partition = ?1 AND base ="
        " coalesce((SELECT max(base) FROM segments WHERE partition = ?1 AND base <= ?2),"
        " (SELECT min(base) FROM segments WHERE partition = ?1))",
        (number, offset),
    )


def segment_after(connection: apsw.Connection, number: int, base: int) -> SegmentRow | None:
    """Return the segment after the one with this base."""
    return _one(
        connection,
        f"SELECT {_COLUMNS} FROM segments WHERE partition = ? AND base > ? ORDER BY base LIMIT 1",
        (number, base),
    )


def live_entries(
    connection: apsw.Connection, number: int, base: int, start: int, bytes_max: int
) -> list[BatchEntry]:
    """Return the entries of a segment in `hub.db` from the one that holds `start`, or the next.

    They end with the one that reaches `bytes_max`.
    """
    rows = connection.execute(
        f"SELECT {_ENTRY_COLUMNS} FROM entries WHERE partition = ?1 AND segment = ?3 AND base >="
        " coalesce((SELECT max(base) FROM entries WHERE partition = ?1 AND base <= ?2), 0)"
        " AND base + records > ?2 ORDER BY base LIMIT ?4",
        (number, start, base, ENTRIES_MAX),
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


def live_rows(
    connection: apsw.Connection, number: int, base: int, start: int, end: int
) -> list[tuple[int, ...]]:
    """Return all entries of a segment in `hub.db` that hold an offset from `start` up to `end`."""
    return select(
        connection,
        f"SELECT {_ENTRY_COLUMNS} FROM entries"
        " WHERE partition = ? AND segment = ? AND base < ? AND base + records > ? ORDER BY base",
        (number, base, end, start),
    )


def live_between(
    connection: apsw.Connection, number: int, start_ms: int, end_ms: int
) -> OffsetSpan | None:
    """Return the offsets from the first to the last batch with an entry in `hub.db` that can have
    a timestamp from `start_ms` up to, not including, `end_ms`; None if no batch can."""
    ((start, end),) = select(
        connection,
        "SELECT min(base), max(base + records) FROM entries"
        " WHERE partition = ? AND first_timestamp < ? AND last_timestamp >= ?",
        (number, end_ms, start_ms),
    )
    return None if start is None else OffsetSpan(start, end)


def live_times(connection: apsw.Connection, number: int) -> TimeBounds | None:
    """Return the least and the greatest timestamp of the batches with an entry in `hub.db`."""
    ((least, greatest),) = select(
        connection,
        "SELECT min(first_timestamp), max(last_timestamp) FROM entries WHERE partition = ?",
        (number,),
    )
    return None if least is None else TimeBounds(least, greatest)


def folded_segments(connection: apsw.Connection, number: int) -> list[FoldedSegment]:
    """Return the segments of a partition that have folded entries, oldest first."""
    rows = select(
        connection,
        "SELECT s.base, s.generation, coalesce(s.end_offset, p.end_offset), s.index_bytes"
        " FROM segments s JOIN partitions p ON p.id = s.partition"
        " WHERE s.partition = ? AND s.index_bytes > 0 ORDER BY s.base",
        (number,),
    )
    return [FoldedSegment(*row) for row in rows]


def folded_end(connection: apsw.Connection, number: int, base: int) -> int:
    """Return the first offset of a segment, or after it, whose entry is not in its index."""
    ((end,),) = select(
        connection,
        "SELECT coalesce((SELECT min(base) FROM entries WHERE partition = ?1 AND segment = ?2),"
        " (SELECT end_offset FROM segments WHERE partition = ?1 AND base = ?2),"
        " (SELECT end_offset FROM partitions WHERE id = ?1))",
        (number, base),
    )
    return int(end)


def _one(connection: apsw.Connection, sql: str, bindings: tuple[Any, ...]) -> SegmentRow | None:
    row: tuple[Any, ...] | None = connection.execute(sql, bindings).fetchone()
    return None if row is None else SegmentRow(*row)
