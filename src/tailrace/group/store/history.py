"""The history of groups: the topic ``tailrace.groups``.

The topic has one line for each join, leave, grant, revocation, term, failure, dead letter, seek and
skip. It is for people: nothing is decided by it. The key of a line is the group; the value is JSON.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from tailrace.backend.contract import Backend, Log, Transaction
from tailrace.clock import utc_time
from tailrace.group.outage import TRANSIENT
from tailrace.group.protocol.actions import WriteHistory
from tailrace.group.protocol.names import consumer_of
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition
from tailrace.topic.composite import Definition
from tailrace.topic.internal_topics import open_internal_topic
from tailrace.topic.offset_search import end_before
from tailrace.topic.reading import batches_within
from tailrace.topic.router import hash_key, route
from tailrace.topic.view import View, commit_following, find

HISTORY: Final = "tailrace.groups"

LINES_MAX: Final = 100_000
"""The number of newest lines, of all groups, that are searched for the lines of one group."""

_STEP: Final = 1000


class HistoryLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event in a group. Fields that do not apply are empty, or 0.

    `what` is the kind of event and `why` its reason. `consumer` is a `GroupConsumer.id`; `process`
    is the process that led the group at the time.
    """

    time: datetime
    group: str
    what: str
    partition: str = ""
    consumer: str = ""
    process: str = ""
    epoch: int = 0
    why: str = ""


class _StoredLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `HistoryLine` as stored, field by field: only `unit` has another name."""

    time: datetime
    group: str
    what: str
    unit: str = ""
    consumer: str = ""
    process: str = ""
    epoch: int = 0
    why: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_StoredLine).decode


def line_of(action: WriteHistory, process: str, time_ms: int) -> HistoryLine:
    """Return the line that an action of the leading process writes."""
    group, what, unit, borrower, epoch, why = action
    time = utc_time(time_ms)
    return HistoryLine(time, group, what, unit, consumer_of(borrower), process, epoch, why)


def append_history(backend: Backend, lines: Sequence[HistoryLine]) -> None:
    """Append lines, all or none. Creates the topic if it does not exist."""
    if not lines:
        return
    view = open_internal_topic(backend, HISTORY, _milliseconds(lines[0]))

    def build() -> Transaction:
        target = view.target
        records: defaultdict[Partition, list[Record]] = defaultdict(list)
        for record in map(_record, lines):
            records[target.partition_of(record.key)].append(record)
        appends = tuple((where, tuple(each)) for where, each in records.items())
        return Transaction(appends, since=target.since)

    commit_following(backend, {HISTORY: view}, build)


def history_append(view: View, line: HistoryLine) -> tuple[Partition, tuple[Record, ...]]:
    """Return the append of a line to the topic, as a part of another transaction."""
    record = _record(line)
    return view.target.partition_of(record.key), (record,)


def record_change(backend: Backend, group: str, what: str, why: str, time_ms: int) -> None:
    """Append a line about an operator's change. Ignores failures: the change is already done."""
    line = line_of(WriteHistory(group, what, why=why), "", time_ms)
    with contextlib.suppress(*TRANSIENT):
        append_history(backend, [line])


def read_history(backend: Backend, group: str, count: int = 1000) -> list[HistoryLine]:
    """Return the newest lines of a group, at most `count`, the newest last."""
    stored = find(backend, HISTORY)
    newest: list[HistoryLine] = []
    if stored is None:
        return newest
    for lines in _backwards(backend.log, group, stored.definition):
        newest = [line for line in lines if line.group == group] + newest
        if len(newest) >= count:
            break
    return newest[-count:] if count > 0 else []


def _backwards(log: Log, group: str, definition: Definition) -> Iterator[list[HistoryLine]]:
    """Yield the lines of the partitions that hold the group, in chunks, the newest chunk first."""
    left, step = LINES_MAX, _STEP
    for storage in reversed(definition.storages):
        shape = definition.storage[storage]
        number = route(definition.router, hash_key(group.encode()), shape.partitions, shape.k)
        where = Partition(HISTORY, storage, number)
        start, high, _ = log.bounds(where)
        while high > start and left > 0:
            low = max(start, high - min(step, left))
            batches = batches_within(log, where, low, high)
            lines = [_read(record.value) for batch in batches for record in records_of(batch)]
            yield lines
            left -= len(lines)
            high = low if lines else end_before(log, where, start, low)
            step *= 2


def _record(line: HistoryLine) -> Record:
    key, value = line.group.encode(), _encode(_StoredLine(*msgspec.structs.astuple(line)))
    return Record(0, _milliseconds(line), Mode.SYNC, Op.INSERT, key, None, value)


def _read(value: bytes) -> HistoryLine:
    return HistoryLine(*msgspec.structs.astuple(_decode(value)))


def _milliseconds(line: HistoryLine) -> int:
    return int(line.time.timestamp() * 1000)
