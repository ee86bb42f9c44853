"""How far each split of a source was read: the table ``source/NAME``, one entry a split."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tailrace.backend.contract import FENCES, Backend, Log, TableKey
from tailrace.errors import UnknownTopic
from tailrace.log.checksum import crc32
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Partition, Position
from tailrace.source.reader import Split
from tailrace.topic.reading import batches_within

_SCAN_LIMIT: Final = 1000
_SEARCH_BYTES: Final = 256 << 10
"""How far behind `SplitState.last` the record is looked for that others may have pushed there."""


class SplitState(msgspec.Struct, frozen=True):
    """A split as the table holds it, written in one transaction with the records it speaks of.

    `last` is the position of the last record it appended, or one shortly before: what others
    append at the same time may come between. `last_checksum` tells the record from theirs. `rows`
    are those appended so far.
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
    """The table of a source."""
    return f"source/{source}"


def fence_of(source: str, split_id: str) -> str:
    """The fence of one of its splits."""
    return f"source/{source}/{split_id}"


def key_of(source: str, split_id: str) -> TableKey:
    """The key of one of its splits."""
    return TableKey(table_of(source), split_id.encode())


def entry(source: str, state: SplitState) -> tuple[TableKey, bytes]:
    """What the table gets to hold for a split."""
    return key_of(source, state.split.id), _encode(state)


def split_states(backend: Backend, source: str) -> dict[str, SplitState]:
    """The splits of a source, by their ids; none before its first run.

    A split that is finished is no longer there, unless it is the last of all.
    """
    states: dict[str, SplitState] = {}
    start = b""
    while page := backend.table.scan(table_of(source), start, limit=_SCAN_LIMIT):
        states |= {key.decode(): _decode(value) for key, value in page}
        start = page[-1][0] + b"\0"
    return states


def stored_fences(backend: Backend, source: str) -> set[str]:
    """The splits of a source that have a fence, by their ids."""
    prefix = FENCES + fence_of(source, "")
    return {found.key.removeprefix(prefix) for found in backend.store.scan(prefix)}


def checksum(record: Record) -> int:
    """What tells a record from its neighbours in the log."""
    return crc32(record.value, crc32(record.key or b"", record.timestamp & 0xFFFFFFFF))


def find_last(log: Log, state: SplitState) -> Record | None:
    """The last record that a split appended; None when it appended none or it is no longer kept."""
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
