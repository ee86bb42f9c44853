"""The streams of a group: whose turn it is, and how far it is with each.

Nothing of this is stored. It follows from the definitions of the topics, from what their partitions
hold and from the group's ledger, each time anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.backend.contract import Backend, Bounds, Log
from tailrace.errors import CorruptBatch, UnknownTopic
from tailrace.group.definition import (
    GROUPS,
    TopicFilter,
    consumer_name,
    matching_topics,
    read_group,
)
from tailrace.group.seeking import StoredSeek, find_seeks, seek_key
from tailrace.group.sending import settle
from tailrace.group.unit import Basis, Unit, UnitState
from tailrace.message import Partition
from tailrace.topic.composite import TOPICS
from tailrace.topic.ledger import Progress, load_storage
from tailrace.topic.lineage import Stream
from tailrace.topic.moment import first_between
from tailrace.topic.open_streams import held_streams, turns
from tailrace.topic.view import Stored


class StreamView(NamedTuple):
    """A stream as a group sees it: its state, the group's mark, and what the partition holds.

    `behind` counts the offsets that are not acknowledged; gaps in them count too.
    """

    partition: Partition
    state: UnitState
    mark: int
    bounds: Bounds
    behind: int


def read_basis(backend: Backend, group: str) -> Basis:
    """The units of a group now. Changes nothing; `UnknownGroup` when there is none.

    Those of a topic that the group has not begun with, or in which it is being sent elsewhere,
    wait.
    """
    return _basis(backend, _look(backend, group), {})


def read_streams(backend: Backend, group: str) -> list[StreamView]:
    """The streams of a group now, by topic, the oldest first. `UnknownGroup` when there is none."""
    look = _look(backend, group)
    return [view for topic in look.topics for view in _streams(backend, look, topic, _Memory(0))]


class BasisReader:
    """Reads the units of a group again and again, for whoever leads it. For one thread.

    It begins with topics that are new to the group, and finishes seeks that were left pending. What
    it found finished it does not look at again until the next seek.
    """

    def __init__(self, backend: Backend, group: str) -> None:
        self._backend = backend
        self._group = group
        self._memories: dict[str, _Memory] = {}

    def read(self) -> Basis:
        """The units of the group now. `UnknownGroup` when there is none."""
        look = _look(self._backend, self._group)
        if not all(map(look.is_settled, look.topics)):
            settle(self._backend, self._group)
            look = _look(self._backend, self._group)
        return _basis(self._backend, look, self._memories)


class _Look(NamedTuple):
    """The entries that say what a group is, read before anything else: so what is derived from them
    is never older than they are."""

    group: str
    version: int
    topics: dict[str, Stored]
    seeks: dict[str, StoredSeek]

    def is_settled(self, topic: str) -> bool:
        """Whether the group has begun with a topic, and is not being sent elsewhere in it."""
        last = self.seeks.get(topic)
        return last is not None and last.is_done(self.topics[topic])

    def has_marks(self, topic: str) -> bool:
        """Whether the ledger says how far the group is in a topic."""
        last = self.seeks.get(topic)
        return last is not None and last.has_marks(self.topics[topic])

    def skipping(self, topic: str) -> set[Stream]:
        """The streams of a topic that wait until a message of theirs is passed over."""
        last = self.seeks.get(topic)
        return set() if last is None else last.skipping()

    def seek_version(self, topic: str) -> int:
        """The version of the entry that says so; 0 when there is none."""
        last = self.seeks.get(topic)
        return 0 if last is None else last.version


def _look(backend: Backend, group: str) -> _Look:
    definition, version = read_group(backend, group)
    topics = matching_topics(backend, TopicFilter(definition.filter))
    return _Look(group, version, topics, find_seeks(backend, group))


class _Memory:
    """What stays true of a topic until the group is sent elsewhere in it, which gives the seek
    another version.

    All streams of storage topics before `oldest` are finished: they are in `finished`. In `unread`
    are streams with a record of each that was not acknowledged; they are not drained before that
    is.
    """

    __slots__ = ("finished", "oldest", "unread", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.oldest = 0
        self.finished: tuple[Unit, ...] = ()
        self.unread: dict[Stream, int] = {}

    def advance(self, oldest: int, views: Iterable[StreamView]) -> None:
        """Put away what is finished for good."""
        old = [view for view in views if view.partition.storage < oldest]
        self.finished += tuple(map(_unit, old))
        self.oldest = oldest


def _basis(backend: Backend, look: _Look, memories: dict[str, _Memory]) -> Basis:
    versions = {GROUPS + look.group: look.version}
    units: list[Unit] = []
    for topic, stored in look.topics.items():
        seek_version = look.seek_version(topic)
        versions |= {TOPICS + topic: stored.version, seek_key(look.group, topic): seek_version}
        memory = memories.get(topic)
        if memory is None or memory.version != seek_version:
            memory = memories[topic] = _Memory(seek_version)
        units += memory.finished
        units += map(_unit, _streams(backend, look, topic, memory))
    for topic in memories.keys() - look.topics.keys():
        del memories[topic]
    return Basis(tuple(units), tuple(sorted(versions.items())))


def _streams(backend: Backend, look: _Look, topic: str, memory: _Memory) -> list[StreamView]:
    """The streams of a topic, but those that the memory has as finished; it learns more."""
    definition = look.topics[topic].definition
    try:
        held = held_streams(backend.log, topic, definition, memory.oldest)
    except UnknownTopic:  # deleted since the look
        return []
    if not look.has_marks(topic):
        return _views(topic, held, {}, {})
    consumer = consumer_name(look.group)
    progress = {
        (storage, number): each
        for storage in range(memory.oldest, definition.pointer + 1)
        for number, each in load_storage(backend.table, consumer, topic, storage).items()
    }

    def drained(stream: Stream, bounds: Bounds) -> bool:
        if not bounds.sealed:
            return False  # and nobody asks
        where = Partition(topic, *stream)
        known = progress.get(stream) or Progress(consumer, where)
        unread = memory.unread.get(stream)
        if unread is None or known.acked(unread) or unread < bounds.start:
            unread = first_unread(backend.log, where, known, bounds)
        if unread is None:
            return True
        memory.unread[stream] = unread
        return False

    found = turns(definition, held, drained, memory.oldest)
    states = dict.fromkeys(set(found.open) - look.skipping(topic), UnitState.OPEN)
    states |= dict.fromkeys(found.finished, UnitState.FINISHED)
    views = _views(topic, held, progress, states)
    memory.advance(found.oldest, views)
    return views


def first_unread(log: Log, where: Partition, progress: Progress, bounds: Bounds) -> int | None:
    """The first record that is there and not acknowledged. One that is damaged is there."""
    for first, after in progress.holes(bounds.end):
        start = max(first, bounds.start)
        if start >= after:
            continue
        try:
            records = first_between(log, where, start, after)
        except CorruptBatch:
            return start
        if records is not None:
            return int(records["offset"][0].as_py())
    return None


def _views(
    topic: str,
    held: Mapping[Stream, Bounds],
    progress: Mapping[Stream, Progress],
    states: Mapping[Stream, UnitState],
) -> list[StreamView]:
    views = []
    for stream in sorted(held):
        bounds, known = held[stream], progress.get(stream)
        mark, acked = 0, 0
        if known is not None:
            mark, acked = known.mark, sum(after - first for first, after in known.ranges())
        behind = max(0, bounds.end - max(mark, bounds.start) - acked)
        state = states.get(stream, UnitState.WAITING)
        views.append(StreamView(Partition(topic, *stream), state, mark, bounds, behind))
    return views


def _unit(view: StreamView) -> Unit:
    return Unit(str(view.partition), view.state, view.behind)
