"""The steps of a seek: of a group's start in a topic, of an operator's seek, and of a skip.

Marks are in tables; grants and fences are in the store; no commit writes both. So a seek has steps,
and any process that finds an unfinished seek may finish it:

1. The entry ``group-seek/GROUP/TOPIC`` becomes *pending* and holds the new marks. The same commit
   raises the fences of the topic's units: their owners can no longer acknowledge, and no unit is
   granted.
2. The marks are written under the seek's own fence. That fence is raised after the entry was read
   and before it is read again: of several processes that finish the seek, only the last can write.
3. The entry becomes *done*, and the fence is raised once more: no process can write any more. From
   now on units are granted again.

A skip of one message takes the same steps for the unit of that message alone: it writes one
acknowledgement, and all other units stay with their owners.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import FENCES, Backend, Change, TableKey, Transaction, raise_fence
from tailrace.delivery.failed_attempts import failed_keys
from tailrace.delivery.handed_out import handed_out_keys
from tailrace.errors import Conflict, Fenced
from tailrace.group.store.definition import GROUPS, consumer_name, grant_key, unit_fence
from tailrace.group.store.start import StartMarks
from tailrace.message import Partition
from tailrace.topic.composite import TOPICS
from tailrace.topic.consumers import consumer_key
from tailrace.topic.ledger import Progress, ledger_keys
from tailrace.topic.lineage import Stream
from tailrace.topic.view import StoredDefinition

SEEKS: Final = "group-seek/"
"""Store entries under this prefix are the last seek of each group in each topic."""


class SeekState(StrEnum):
    """The state of a seek."""

    PENDING = "pending"
    DONE = "done"


class Seek(msgspec.Struct, frozen=True):
    """The last seek of a group in a topic; the first one is the group's start.

    `topic` is the identity of the topic. `marks` are those of `StartMarks`, with streams written as
    ``1.7``; a seek that is done has its marks in the ledger alone. `first`: the group is new to the
    topic, so everything stored under its name belongs to an earlier topic. `skipped` are the
    offsets of a skip, which has no marks.
    """

    state: SeekState
    number: int
    topic: str
    target: str
    whole: bool
    marks: dict[str, int]
    first: bool = False
    skipped: dict[str, int] = {}


_decode = msgspec.json.Decoder(Seek).decode


class StoredSeek(NamedTuple):
    """A seek, and the version of the store entry that holds it."""

    seek: Seek
    version: int

    def is_done(self, stored: StoredDefinition) -> bool:
        """True if the seek is finished, and is of this topic, not of an earlier one of its name."""
        return self.seek.state is SeekState.DONE and self.has_marks(stored)

    def has_marks(self, stored: StoredDefinition) -> bool:
        """True if the ledger has the marks of this topic, which is so even during a skip."""
        written = self.seek.state is SeekState.DONE or bool(self.seek.skipped)
        return written and self.seek.topic == stored.definition.identity

    def skipping(self) -> set[Stream]:
        """Return the streams in which a skip is pending: they are not granted."""
        return {_stream(name) for name in self.seek.skipped}


class SeekOrder(NamedTuple):
    """A seek to execute in a topic: the topic, the last seek in it, and the new marks."""

    stored: StoredDefinition
    last: StoredSeek | None
    target: str
    marks: StartMarks


def find_seek(backend: Backend, group: str, topic: str) -> StoredSeek | None:
    """Return the last seek of a group in a topic; None if it never started there."""
    entry = backend.store.get(seek_key(group, topic))
    if entry is None or entry.value is None:
        return None
    return StoredSeek(_decode(entry.value), entry.version)


def find_seeks(backend: Backend, group: str) -> dict[str, StoredSeek]:
    """Return the last seek of a group in each topic where it started."""
    prefix = seek_key(group, "")
    return {
        key.removeprefix(prefix): StoredSeek(_decode(value), version)
        for key, value, version in backend.store.scan(prefix)
        if value is not None
    }


def pending_change(
    backend: Backend, group: str, version: int, orders: Mapping[str, SeekOrder]
) -> Change:
    """Return the first step of seeks: it fences the owners of the units concerned.

    The grants remain, so that the leader knows which borrowers to notify. `version` is that of the
    group's definition, 0 if the change creates the group.
    """
    expect: dict[str, int] = {GROUPS + group: version}
    writes: dict[str, bytes | None] = {}
    for topic, (stored, last, target, marks) in orders.items():
        key = seek_key(group, topic)
        expect |= {TOPICS + topic: stored.version, key: 0 if last is None else last.version}
        pending = Seek(
            SeekState.PENDING,
            1 if last is None else last.seek.number + 1,
            stored.definition.identity,
            target,
            marks.whole,
            _by_name(marks.marks),
            first=last is None or last.seek.topic != stored.definition.identity,
            skipped=_by_name(marks.skipped),
        )
        writes[key] = msgspec.json.encode(pending)
        writes[consumer_key(topic, consumer_name(group))] = b""
        if marks.skipped:
            units = {f"{topic}/{name}" for name in pending.skipped}
        else:
            units = _units(backend, group, topic, stored)
        for unit in units:
            writes[FENCES + unit_fence(group, unit)] = b""
    return Change(expect, writes)


def finish_pending(backend: Backend, group: str, topic: str) -> bool:
    """Finish the pending seek, even while other processes try the same. False if there is none, or
    if another process finished it."""
    found = find_seek(backend, group, topic)
    while found is not None and found.seek.state is SeekState.PENDING:
        if _run(finishing(backend, group, topic)):
            return True
        before, found = found, find_seek(backend, group, topic)
        if found != before:
            break
    return False


def _run(steps: Generator[None, None, bool]) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            done: bool = end.value
            return done


def finishing(backend: Backend, group: str, topic: str) -> Generator[None, None, bool]:
    """One attempt of `finish_pending`. It yields wherever another process may intervene."""
    found = find_seek(backend, group, topic)
    if found is None or found.seek.state is SeekState.DONE:
        return False
    yield
    fence = raise_fence(backend.store, seek_fence(group, topic))
    yield
    if find_seek(backend, group, topic) != found:
        return False
    yield
    marks = _ledger_writes(backend, group, topic, found.seek)
    yield
    try:
        if marks:
            backend.commit(Transaction(table=marks, fence=fence))
    except Fenced:
        return False
    yield
    return _conclude(backend, group, topic, found)


def seek_key(group: str, topic: str) -> str:
    """Return the key of a group's last seek in a topic."""
    return f"{SEEKS}{group}/{topic}"


def seek_fence(group: str, topic: str) -> str:
    """Return the fence of the process that finishes a seek."""
    return f"group-seek/{group}/{topic}"


def _conclude(backend: Backend, group: str, topic: str, found: StoredSeek) -> bool:
    done = msgspec.structs.replace(found.seek, state=SeekState.DONE, marks={}, skipped={})
    key = seek_key(group, topic)
    writes = {key: msgspec.json.encode(done), FENCES + seek_fence(group, topic): b""}
    try:
        backend.store.commit(Change({key: found.version}, writes))
    except Conflict:
        return False
    return True


def _ledger_writes(
    backend: Backend, group: str, topic: str, order: Seek
) -> dict[TableKey, bytes | None]:
    consumer = consumer_name(group)
    entries: dict[TableKey, bytes | None] = {}
    if order.whole:
        entries |= dict.fromkeys(ledger_keys(backend.table, consumer, topic))
    if not order.skipped:
        entries |= dict.fromkeys(failed_keys(backend.table, group, topic))
    if order.first:
        entries |= dict.fromkeys(handed_out_keys(backend.table, group, topic))
    for stream, mark in order.marks.items():
        where = Partition.parse(f"{topic}/{stream}")
        if order.whole:
            progress = Progress(consumer, where)
        else:
            progress = Progress.load(backend.table, consumer, where)
        progress.reset(mark)
        entries |= progress.writes()
    for stream, offset in order.skipped.items():
        progress = Progress.load(backend.table, consumer, Partition.parse(f"{topic}/{stream}"))
        progress.ack(offset, offset + 1)
        entries |= progress.writes()
    return entries


def _by_name(offsets: Mapping[Stream, int]) -> dict[str, int]:
    return {f"{storage}.{number}": offset for (storage, number), offset in offsets.items()}


def _stream(name: str) -> Stream:
    storage, _, number = name.partition(".")
    return int(storage), int(number)


def _units(backend: Backend, group: str, topic: str, stored: StoredDefinition) -> set[str]:
    """Return the units of a topic, and granted units of an earlier topic of its name."""
    prefix = grant_key(group, "")
    granted = {entry.key.removeprefix(prefix) for entry in backend.store.scan(f"{prefix}{topic}/")}
    return granted | {
        str(Partition(topic, storage, number))
        for storage, shape in enumerate(stored.definition.storage)
        for number in range(shape.partitions)
    }
