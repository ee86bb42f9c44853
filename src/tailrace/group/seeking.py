"""The steps in which a group is sent somewhere: at its start in a topic, by a seek, and by a skip.

Marks are in tables, grants and fences in the store, and no commit writes both. So a seek has steps,
and whoever finds one half done may finish it:

1. The entry ``group-seek/GROUP/TOPIC`` says *pending* and what the marks will be. The same commit
   takes the topic's units from their owners, and raises their fences: nobody acknowledges anything
   any more, and nothing is granted.
2. The marks are written, under a fence of the seek's own, raised after the entry was read and
   before it is read again: so of several that finish it only the last can still write.
3. The entry says *done*, and the fence is raised once more: now nobody can. From here on units are
   granted again.

A skip, which passes over one message, takes the same steps for the unit of that message alone: what
is written is one acknowledgement, and all other units stay with their owners.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import FENCES, Backend, Change, TableKey, Transaction, raise_fence
from tailrace.errors import Conflict, Fenced
from tailrace.group.definition import GROUPS, consumer_name, grant_key, unit_fence
from tailrace.group.failed import failed_keys
from tailrace.group.reach import reach_keys
from tailrace.group.starting import Placement
from tailrace.message import Partition
from tailrace.topic.composite import TOPICS
from tailrace.topic.consumers import consumer_key
from tailrace.topic.ledger import Progress, ledger_keys
from tailrace.topic.lineage import Stream
from tailrace.topic.view import Stored

SEEKS: Final = "group-seek/"
"""Store entries under this prefix are the last seek of each group in each topic."""


class SeekState(StrEnum):
    """How far a seek is."""

    PENDING = "pending"
    DONE = "done"


class Seek(msgspec.Struct, frozen=True):
    """The last time that a group was sent somewhere in a topic: the first was its start.

    `topic` is the identity of the topic. `marks` are those of a `Placement`, with streams written
    as ``1.7``; once it is done they are in the ledger alone. `first`: the group is new to the
    topic, so whatever is kept under its name is of another. `skipped` is that of a skip, which has
    no marks.
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

    def is_done(self, stored: Stored) -> bool:
        """Whether all is in the ledger, and is of this topic, not an earlier one of its name."""
        return self.seek.state is SeekState.DONE and self.has_marks(stored)

    def has_marks(self, stored: Stored) -> bool:
        """Whether the marks of this topic are in the ledger: also while a skip is pending."""
        settled = self.seek.state is SeekState.DONE or bool(self.seek.skipped)
        return settled and self.seek.topic == stored.definition.identity

    def skipping(self) -> set[Stream]:
        """The streams in which a message is being passed over: nobody is granted them now."""
        return {_stream(name) for name in self.seek.skipped}


class Order(NamedTuple):
    """What is to become of a topic: where it was read, what came last, and where to go."""

    stored: Stored
    last: StoredSeek | None
    target: str
    placement: Placement


def find_seek(backend: Backend, group: str, topic: str) -> StoredSeek | None:
    """The last seek of a group in a topic; None when it was never there."""
    entry = backend.store.get(seek_key(group, topic))
    if entry is None or entry.value is None:
        return None
    return StoredSeek(_decode(entry.value), entry.version)


def find_seeks(backend: Backend, group: str) -> dict[str, StoredSeek]:
    """The last seek of a group in each topic that it ever was in."""
    prefix = seek_key(group, "")
    return {
        key.removeprefix(prefix): StoredSeek(_decode(value), version)
        for key, value, version in backend.store.scan(prefix)
        if value is not None
    }


def pending_change(
    backend: Backend, group: str, version: int, orders: Mapping[str, Order]
) -> Change:
    """The first step of seeks in some topics: who owns their units can write no more.

    The grants stay, for a leader to see whom it has to tell.

    `version` is that of the group's definition, 0 for a group that the change is to create.
    """
    expect: dict[str, int] = {GROUPS + group: version}
    writes: dict[str, bytes | None] = {}
    for topic, (stored, last, target, placement) in orders.items():
        key = seek_key(group, topic)
        expect |= {TOPICS + topic: stored.version, key: 0 if last is None else last.version}
        pending = Seek(
            SeekState.PENDING,
            1 if last is None else last.seek.number + 1,
            stored.definition.identity,
            target,
            placement.whole,
            _by_name(placement.marks),
            first=last is None or last.seek.topic != stored.definition.identity,
            skipped=_by_name(placement.skipped),
        )
        writes[key] = msgspec.json.encode(pending)
        writes[consumer_key(topic, consumer_name(group))] = b""
        if placement.skipped:
            units = {f"{topic}/{name}" for name in pending.skipped}
        else:
            units = _units(backend, group, topic, stored)
            writes |= dict.fromkeys(failed_keys(backend, group, topic))
        for unit in units:
            writes[FENCES + unit_fence(group, unit)] = b""
    return Change(expect, writes)


def finish_pending(backend: Backend, group: str, topic: str) -> bool:
    """Finish the seek that is pending, whoever else is at it; False when there is none, or somebody
    else finished it."""
    found = find_seek(backend, group, topic)
    while found is not None and found.seek.state is SeekState.PENDING:
        if _take(finishing(backend, group, topic)):
            return True
        before, found = found, find_seek(backend, group, topic)
        if found != before:
            break
    return False


def _take(steps: Generator[None, None, bool]) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            done: bool = end.value
            return done


def finishing(backend: Backend, group: str, topic: str) -> Generator[None, None, bool]:
    """One try of `finish_pending`, which stops wherever others may come between."""
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
    """The store entry of a group's last seek in a topic."""
    return f"{SEEKS}{group}/{topic}"


def seek_fence(group: str, topic: str) -> str:
    """The fence of whoever finishes a seek."""
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
    if order.first:
        entries |= dict.fromkeys(reach_keys(backend.table, group, topic))
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


def _units(backend: Backend, group: str, topic: str, stored: Stored) -> set[str]:
    """The units of a topic, and those of an earlier one of its name that somebody has."""
    prefix = grant_key(group, "")
    granted = {entry.key.removeprefix(prefix) for entry in backend.store.scan(f"{prefix}{topic}/")}
    return granted | {
        str(Partition(topic, storage, number))
        for storage, shape in enumerate(stored.definition.storage)
        for number in range(shape.partitions)
    }
