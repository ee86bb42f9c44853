"""What happened in groups, and why: the topic ``tailrace.groups``.

One line for each join, leave, grant, revocation, term, failure and seek. It is there for people:
nothing is decided by it. Its key is the group, its value a `HistoryLine` as JSON.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from tailrace.backend.contract import Backend, Log, Transaction
from tailrace.group.actions import Record as RecordLine
from tailrace.group.naming import consumer_of
from tailrace.group.trouble import PASSING
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition
from tailrace.topic.composite import Definition
from tailrace.topic.moment import end_before
from tailrace.topic.own import own_topic
from tailrace.topic.reading import batches_within
from tailrace.topic.router import hash_key, route
from tailrace.topic.view import commit_following, find

HISTORY: Final = "tailrace.groups"

LINES_MAX: Final = 100_000
"""So many of the newest lines, of all groups, are looked through for those of one."""

_STEP: Final = 1000


class HistoryLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened. What does not belong to it is empty, or 0.

    `consumer` is its name, as in `GroupConsumer.id`; `process` is the one that led the group then.
    """

    time: datetime
    group: str
    what: str
    unit: str = ""
    consumer: str = ""
    process: str = ""
    epoch: int = 0
    why: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HistoryLine).decode


def line_of(record: RecordLine, process: str, time_ms: int) -> HistoryLine:
    """The line that a process, named as for people, is to write."""
    group, what, unit, borrower, epoch, why = record
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return HistoryLine(time, group, what, unit, consumer_of(borrower), process, epoch, why)


def append_history(backend: Backend, lines: Sequence[HistoryLine]) -> None:
    """Write lines, all or none. The topic is made if it is not there."""
    if not lines:
        return
    view = own_topic(backend, HISTORY, _milliseconds(lines[0]))

    def build() -> Transaction:
        target = view.target
        records: defaultdict[Partition, list[Record]] = defaultdict(list)
        for record in map(_record, lines):
            records[target.partition_of(record.key)].append(record)
        appends = tuple((where, tuple(each)) for where, each in records.items())
        return Transaction(appends, since=target.since)

    commit_following(backend, {HISTORY: view}, build)


def note(backend: Backend, group: str, what: str, why: str, time_ms: int) -> None:
    """Write a line of what an operator did. It is done whether that can be written or not."""
    line = line_of(RecordLine(group, what, why=why), "", time_ms)
    with contextlib.suppress(*PASSING):
        append_history(backend, [line])


def read_history(backend: Backend, group: str, count: int = 1000) -> list[HistoryLine]:
    """The newest lines of a group, at most `count`, the newest last."""
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
    """The lines of the partitions that have this group, some at a time, the newest first."""
    left, step = LINES_MAX, _STEP
    for storage in reversed(range(definition.pointer + 1)):
        shape = definition.storage[storage]
        number = route(definition.router, hash_key(group.encode()), shape.partitions, shape.k)
        where = Partition(HISTORY, storage, number)
        start, high, _ = log.bounds(where)
        while high > start and left > 0:
            low = max(start, high - min(step, left))
            batches = batches_within(log, where, low, high)
            lines = [_decode(record.value) for batch in batches for record in records_of(batch)]
            yield lines
            left -= len(lines)
            high = low if lines else end_before(log, where, start, low)
            step *= 2


def _record(line: HistoryLine) -> Record:
    key = line.group.encode()
    return Record(0, _milliseconds(line), Mode.SYNC, Op.INSERT, key, None, _encode(line))


def _milliseconds(line: HistoryLine) -> int:
    return int(line.time.timestamp() * 1000)
