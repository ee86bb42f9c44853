"""The splits of a source as its table ``source/NAME`` stores them.

    ID            the state of a split, written by its owner
    ID \\0 PARENT  the split as one parent reported it, in the parent's transaction; a split that no
                  other reported has an empty parent
    \\0            the first splits are stored

So each key has one writer, and a second report changes nothing of a split that is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tailrace.backend.contract import FENCES, Backend, Log, TableKey
from tailrace.backend.table_scan import scan_all
from tailrace.errors import InvalidValue, UnknownTopic
from tailrace.log.checksum import crc32
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Partition, Position
from tailrace.source.reader import Split
from tailrace.topic.reading import batches_within

_SEARCH_BYTES: Final = 256 << 10
"""How many bytes after `SplitState.last` are searched for the record."""

_BETWEEN: Final = b"\0"
"""Between a split and its parent in the key of a report. No id has this character."""

REMOVED_EARLY: Final = b"removed early"
"""The value of `begun_key` in a table that an earlier version began."""

_AFTER_REPORTS: Final = b"\1"
"""After the id of a split in a key that is above the keys of all its reports."""

_BOUND: Final = "*"
"""Before the name of a unit of bound splits. No id begins with this character."""


class SplitState(msgspec.Struct, frozen=True):
    """A split as the table stores it, in one transaction with its records.

    `last` is the position of the last record that it appended, or one shortly before: other appends
    at the same time may come between. `last_checksum` identifies the record among them. `rows`
    counts the rows appended so far, `batches` the batches stored: so each batch changes the state.
    `lag` is that of the last batch.
    """

    split: Split
    position: Any = None
    last: str | None = None
    last_checksum: int = 0
    rows: int = 0
    finished: bool = False
    lag: int | None = None
    batches: int = 0


@dataclass(frozen=True, slots=True)
class StoredSplits:
    """The table of a source: states by split, and reports by split and parent.

    `begun` is False until the first splits are stored. `removed_early`: see `SplitGraph`.
    """

    states: Mapping[str, SplitState] = field(default_factory=dict)
    reports: Mapping[str, Mapping[str, Split]] = field(default_factory=dict)
    begun: bool = False
    removed_early: bool = False


_encode = msgspec.json.Encoder().encode
_decode_state = msgspec.json.Decoder(SplitState).decode
_decode_split = msgspec.json.Decoder(Split).decode


def check_split(split: Split) -> Split:
    """Return a split whose names are valid; else `InvalidValue`."""
    valid = "text that is not empty, has no zero character and does not begin with *"
    for name, value in (("the id of a split", split.id), ("bound", split.bound)):
        if value is not None and (not value or "\0" in value or value.startswith(_BOUND)):
            raise InvalidValue(name, value, valid)
    return split


def unit_of(split: Split) -> str:
    """Return the unit that a split belongs to: itself, or the one of all splits bound with it."""
    return split.id if split.bound is None else _BOUND + split.bound


def is_bound(unit: str) -> bool:
    """True if a unit is one of splits that are bound together."""
    return unit.startswith(_BOUND)


def table_of(source: str) -> str:
    """Return the table of a source. The fence of this name is that of the epoch of the source."""
    return f"source/{source}"


def fence_of(source: str, unit: str) -> str:
    """Return the fence of a unit."""
    return f"source/{source}/{unit}"


def state_key(source: str, split_id: str) -> TableKey:
    """Return the key of the state of a split."""
    return TableKey(table_of(source), split_id.encode())


def report_key(source: str, split_id: str, parent: str) -> TableKey:
    """Return the key of the report of a split by a parent."""
    return TableKey(table_of(source), split_id.encode() + _BETWEEN + parent.encode())


def begun_key(source: str) -> TableKey:
    """Return the key that exists once the first splits are stored."""
    return TableKey(table_of(source), _BETWEEN)


def state_entry(source: str, state: SplitState) -> tuple[TableKey, bytes]:
    """Return the table entry of a state."""
    return state_key(source, state.split.id), _encode(state)


def report_entry(source: str, split: Split, parent: str = "") -> tuple[TableKey, bytes]:
    """Return the table entry of a report. Raises `InvalidValue` if a name is not valid."""
    return report_key(source, check_split(split).id, parent), _encode(split)


def read_splits(backend: Backend, source: str) -> StoredSplits:
    """Return all splits of a source."""
    return _stored(scan_all(backend.table, table_of(source)))


def _stored(entries: Iterable[tuple[bytes, bytes]]) -> StoredSplits:
    states: dict[str, SplitState] = {}
    reports: dict[str, dict[str, Split]] = {}
    begun: bytes | None = None
    for key, value in entries:
        split_id, between, parent = key.partition(_BETWEEN)
        if not between:
            states[split_id.decode()] = _decode_state(value)
        elif split_id:
            # After the state, if there is one: a split is decoded once.
            state = states.get(name := split_id.decode())
            split = _decode_split(value) if state is None else state.split
            reports.setdefault(name, {})[parent.decode()] = split
        else:
            begun = value
    return StoredSplits(states, reports, begun is not None, begun == REMOVED_EARLY)


def read_some(backend: Backend, source: str, split_ids: Iterable[str]) -> StoredSplits:
    """Return some splits of a source: those of these that it has."""
    begun = backend.table.get(*begun_key(source))
    entries = [] if begun is None else [(_BETWEEN, begun)]
    for split_id in split_ids:
        key = split_id.encode()
        entries += scan_all(backend.table, table_of(source), key, key + _AFTER_REPORTS)
    return _stored(entries)


def stored_fences(backend: Backend, source: str) -> set[str]:
    """Return the units of a source that have a fence."""
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
