"""The placement of an append: its place in a segment, its bytes, and the rows that commit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw

from tailrace.log.checksum import crc32
from tailrace.log.index import BatchEntry
from tailrace.log.record import Encoded
from tailrace.log.segment import SEGMENT_BYTES_MAX

_SELECT_TAIL = (
    "SELECT id, created, sealed, next_offset, end_offset, segment, bytes, records, entries"
    " FROM partitions WHERE id = ?"
)


class Tail(NamedTuple):
    """The tail of a partition: its row in `hub.db`. Without a `segment`, the next append begins a
    segment."""

    number: int
    created: int
    sealed: int
    next_offset: int
    end_offset: int
    segment: int | None
    bytes: int
    records: int
    entries: int


@dataclass(slots=True)
class Placement:
    """A batch and its place in the segment that begins at `segment`; with `rolls`, the batch begins
    that segment. Its entry gets the checksum when the bytes are stamped."""

    before: Tail
    after: Tail
    segment: int
    rolls: bool
    entry: BatchEntry
    encoded: Encoded


def read_tail(connection: apsw.Connection, number: int) -> Tail | None:
    """Return the tail of the partition with this number, or None if it was deleted."""
    row: tuple[Any, ...] | None = connection.execute(_SELECT_TAIL, (number,)).fetchone()
    return None if row is None else Tail(*row)


def place(tail: Tail, encoded: Encoded, segment_bytes: int, now_ms: int) -> Placement:
    """Place a batch at the tail, or in a new segment if the present one would become too large."""
    size, count = len(encoded.data), encoded.count
    base = tail.next_offset
    limit = min(segment_bytes, SEGMENT_BYTES_MAX)
    rolls = tail.segment is None or (tail.bytes > 0 and tail.bytes + size > limit)
    segment = base if rolls or tail.segment is None else tail.segment
    position = 0 if rolls else tail.bytes
    ordinal = 0 if rolls else tail.records
    first, last = encoded.first_timestamp, encoded.last_timestamp
    entry = BatchEntry(base, count, ordinal, position, size, first, last, now_ms, crc=0)
    end = base + count
    after = Tail(
        tail.number,
        tail.created,
        tail.sealed,
        next_offset=end,
        end_offset=end,
        segment=segment,
        bytes=position + size,
        records=ordinal + count,
        entries=tail.entries + 1,
    )
    return Placement(tail, after, segment, rolls, entry, encoded)


def stamp(placement: Placement) -> memoryview:
    """Write the offsets into the batch's bytes; set the checksum of the placement's entry."""
    entry = placement.entry
    data = placement.encoded.stamp(entry.base)
    placement.entry = BatchEntry(*entry[:-1], crc=crc32(data))
    return data


def commit_rows(connection: apsw.Connection, placement: Placement) -> bool:
    """Write the rows that commit a batch; False if the partition is sealed, deleted or has
    moved."""
    before, after, entry = placement.before, placement.after, placement.entry
    connection.execute(
        "UPDATE partitions SET next_offset = ?, end_offset = ?, segment = ?, bytes = ?,"
        " records = ?, entries = ?"
        " WHERE id = ? AND sealed = 0 AND next_offset = ? AND segment IS ?",
        (*after[3:], after.number, before.next_offset, before.segment),
    )
    if connection.changes() != 1:
        return False
    if placement.rolls:
        if before.segment is not None:
            connection.execute(
                "UPDATE segments SET end_offset = ?, bytes = ?, records = ?, appended_ms = ?"
                " WHERE partition = ? AND base = ?",
                (
                    *(before.end_offset, before.bytes, before.records, entry.appended_ms),
                    *(before.number, before.segment),
                ),
            )
        connection.execute(
            "INSERT INTO segments(partition, base) VALUES (?, ?)", (after.number, placement.segment)
        )
    connection.execute(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (after.number, *entry, placement.segment),
    )
    return True
