"""The position of each split of a source: the table ``source/NAME``, one entry for each split."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tailrace.backend.contract import FENCES, Backend, Log, TableKey
from tailrace.backend.table_scan import scan_all
from tailrace.errors import UnknownTopic
from tailrace.log.checksum import crc32
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Partition, Position
from tailrace.source.reader import Split
from tailrace.topic.reading import batches_within

_SEARCH_BYTES: Final = 256 << 10
"""How many bytes after `SplitState.last` are searched for the record."""


class SplitState(msgspec.Struct, frozen=True):
    """A split as the table stores it, in one transaction with its records.

    `last` is the position of the last record that it appended, or one shortly before: other appends
    at the same time may come between. `last_checksum` identifies the record among them. `rows`
    counts the rows appended so far.
    """

    split: Split
    position: Any = None
    last: str | None = None
    last_checksum: int = 0
    rows: int = 0
    finished: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SplitState).decode


def table_of(source: str) -> str:
    """Return the table of a source."""
    return f"source/{source}"


def fence_of(source: str, split_id: str) -> str:
    """Return the fence of a split."""
    return f"source/{source}/{split_id}"


def key_of(source: str, split_id: str) -> TableKey:
    """Return the table key of a split."""
    return TableKey(table_of(source), split_id.encode())


def entry(source: str, state: SplitState) -> tuple[TableKey, bytes]:
    """Return the table entry of a split."""
    return key_of(source, state.split.id), _encode(state)


def split_states(backend: Backend, source: str) -> dict[str, SplitState]:
    """Return the splits of a source by id; none before its first run.

    A finished split is removed, unless it is the only one.
    """
    entries = scan_all(backend.table, table_of(source))
    return {key.decode(): _decode(value) for key, value in entries}


def stored_fences(backend: Backend, source: str) -> set[str]:
    """Return the ids of the splits of a source that have a fence."""
    prefix = FENCES + fence_of(source, "")
    return {found.key.removeprefix(prefix) for found in backend.store.scan(prefix)}


def checksum(record: Record) -> int:
    """Return a checksum that identifies a record among its neighbours in the log."""
    return crc32(record.value, crc32(record.key or b"", record.timestamp & 0xFFFFFFFF))


def find_last(log: Log, state: SplitState) -> Record | None:
    """Return the last record that a split appended; None if there is none, or it was removed."""
    if state.last is None:
        return None
    topic, storage, number, offset = Position.parse(state.last)
    partition = Partition(topic, storage, number)
    try:
        bounds = log.bounds(partition)
    except UnknownTopic:
        return None
    searched = 0
    for records in batches_within(log, partition, max(offset, bounds.start), bounds.end, 1):
        for record in records_of(records):
            if checksum(record) == state.last_checksum:
                return record
        searched += records.nbytes
        if searched > _SEARCH_BYTES:
            break
    return None
