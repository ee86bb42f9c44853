"""The streams of a group: which are open, and the group's progress in each.

Nothing of this is stored. Each read computes it from the definitions of the topics, the bounds of
their partitions and the group's ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.backend.contract import Backend, Bounds, Log
from tailrace.errors import CorruptBatch, UnknownTopic
from tailrace.group.protocol.unit import Basis, Unit, UnitState
from tailrace.group.store.definition import (
    GROUPS,
    TopicFilter,
    consumer_name,
    matching_topics,
    read_group,
)
from tailrace.group.store.seek import finish_seeks
from tailrace.group.store.seek_steps import StoredSeek, find_seeks, seek_key
from tailrace.message import Partition
from tailrace.topic.composite import TOPICS
from tailrace.topic.ledger import Progress, load_storage
from tailrace.topic.lineage import Stream
from tailrace.topic.offset_search import first_between
from tailrace.topic.open_streams import find_open_streams, held_streams
from tailrace.topic.view import StoredDefinition


class StreamView(NamedTuple):
    """A stream as a group sees it: its state, the group's mark, and the partition's bounds.

    `lag` is the number of offsets that are not acknowledged, including gaps.
    """

    partition: Partition
    state: UnitState
    mark: int
    bounds: Bounds
    lag: int


def read_basis(backend: Backend, group: str) -> Basis:
    """Return the units of a group. Changes nothing. Raises `UnknownGroup`.

    Units of a topic in which the group has not started, or in which a seek is pending, are waiting.
    """
    return _basis(backend, _read_entries(backend, group), {})


def read_streams(backend: Backend, group: str) -> list[StreamView]:
    """Return the streams of a group, by topic, the oldest first. Raises `UnknownGroup`."""
    entries = _read_entries(backend, group)
    return [
        view for topic in entries.topics for view in _streams(backend, entries, topic, _Memory(0))
    ]


class BasisReader:
    """Reads the units of a group repeatedly, for its leader. For one thread.

    It starts the group in topics that are new to it, and finishes pending seeks. It remembers
    finished streams, and reads them again only after a seek.
    """

    def __init__(self, backend: Backend, group: str) -> None:
        self._backend = backend
        self._group = group
        self._memories: dict[str, _Memory] = {}

    def read(self) -> Basis:
        """Return the units of the group. Raises `UnknownGroup`."""
        entries = _read_entries(self._backend, self._group)
        if not all(map(entries.is_started, entries.topics)):
            finish_seeks(self._backend, self._group)
            entries = _read_entries(self._backend, self._group)
        return _basis(self._backend, entries, self._memories)


class _GroupEntries(NamedTuple):
    """The store entries that define a group. They are read before anything else, so a basis is
    never older than its entries."""

    group: str
    version: int
    topics: dict[str, StoredDefinition]
    seeks: dict[str, StoredSeek]

    def is_started(self, topic: str) -> bool:
        """True if the group has started in a topic, and no seek is pending there."""
        last = self.seeks.get(topic)
        return last is not None and last.is_done(self.topics[topic])

    def has_marks(self, topic: str) -> bool:
        """True if the ledger has the group's progress in a topic."""
        last = self.seeks.get(topic)
        return last is not None and last.has_marks(self.topics[topic])

    def skipping(self, topic: str) -> set[Stream]:
        """Return the streams of a topic in which a skip is pending."""
        last = self.seeks.get(topic)
        return set() if last is None else last.skipping()

    def seek_version(self, topic: str) -> int:
        """Return the version of the last seek in a topic; 0 if there is none."""
        last = self.seeks.get(topic)
        return 0 if last is None else last.version


def _read_entries(backend: Backend, group: str) -> _GroupEntries:
    definition, version = read_group(backend, group)
    topics = matching_topics(backend, TopicFilter(definition.filter))
    return _GroupEntries(group, version, topics, find_seeks(backend, group))


class _Memory:
    """Facts about a topic that remain true until the next seek, which has another version.

    All streams of storage topics before `oldest` are finished and listed in `finished`. `unread`
    has the offset of an unacknowledged record by stream; the stream is not drained before that
    record is acknowledged.
    """

    __slots__ = ("finished", "oldest", "unread", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.oldest = 0
        self.finished: tuple[Unit, ...] = ()
        self.unread: dict[Stream, int] = {}

    def advance(self, oldest: int, views: Iterable[StreamView]) -> None:
        """Remember the streams of finished storage topics."""
        old = [view for view in views if view.partition.storage < oldest]
        self.finished += tuple(map(_unit, old))
        self.oldest = oldest


def _basis(backend: Backend, entries: _GroupEntries, memories: dict[str, _Memory]) -> Basis:
    versions = {GROUPS + entries.group: entries.version}
    units: list[Unit] = []
    for topic, stored in entries.topics.items():
        seek_version = entries.seek_version(topic)
        versions |= {TOPICS + topic: stored.version, seek_key(entries.group, topic): seek_version}
        memory = memories.get(topic)
        if memory is None or memory.version != seek_version:
            memory = memories[topic] = _Memory(seek_version)
        units += memory.finished
        units += map(_unit, _streams(backend, entries, topic, memory))
    for topic in memories.keys() - entries.topics.keys():
        del memories[topic]
    return Basis(tuple(units), tuple(sorted(versions.items())))


def _streams(
    backend: Backend, entries: _GroupEntries, topic: str, memory: _Memory
) -> list[StreamView]:
    """Return the streams of a topic, except those remembered as finished; updates the memory."""
    definition = entries.topics[topic].definition
    try:
        held = held_streams(backend.log, topic, definition, memory.oldest)
    except UnknownTopic:  # deleted meanwhile
        return []
    if not entries.has_marks(topic):
        return _views(topic, held, {}, {})
    consumer = consumer_name(entries.group)
    progress = {
        (storage, number): each
        for storage in range(memory.oldest, definition.pointer + 1)
        for number, each in load_storage(backend.table, consumer, topic, storage).items()
    }

    def drained(stream: Stream, bounds: Bounds) -> bool:
        if not bounds.sealed:
            return False  # its records need not be read
        where = Partition(topic, *stream)
        known = progress.get(stream) or Progress(consumer, where)
        unread = memory.unread.get(stream)
        if unread is None or known.acked(unread) or unread < bounds.start:
            unread = first_unread(backend.log, where, known, bounds)
        if unread is None:
            return True
        memory.unread[stream] = unread
        return False

    found = find_open_streams(definition, held, drained, memory.oldest)
    states = dict.fromkeys(set(found.open) - entries.skipping(topic), UnitState.OPEN)
    states |= dict.fromkeys(found.finished, UnitState.FINISHED)
    views = _views(topic, held, progress, states)
    memory.advance(found.oldest, views)
    return views


def first_unread(log: Log, where: Partition, progress: Progress, bounds: Bounds) -> int | None:
    """Return the first offset whose record exists, damaged or not, and is not acknowledged."""
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
        lag = max(0, bounds.end - max(mark, bounds.start) - acked)
        state = states.get(stream, UnitState.WAITING)
        views.append(StreamView(Partition(topic, *stream), state, mark, bounds, lag))
    return views


def _unit(view: StreamView) -> Unit:
    return Unit(str(view.partition), view.state, view.lag)
