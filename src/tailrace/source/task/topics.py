"""The two topics of one partition by which the tasks of a source agree: sync and heartbeat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tailrace.backend.contract import Backend, Change, Fence, Transaction
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition
from tailrace.reserved_names import HEARTBEAT_SUFFIX, SYNC_SUFFIX
from tailrace.source.names import SNAPSHOTS
from tailrace.topic.internal_topics import open_internal_topic

READ_BYTES: Final = 1 << 20

EVENTS_READ_MAX: Final = 100
"""A task reads at most so many of the newest events of the heartbeat topic when it joins."""


class TaskTopic:
    """A topic of one partition that a task reads and appends to. For one thread."""

    def __init__(self, backend: Backend, name: str, key: bytes, now_ms: int) -> None:
        open_internal_topic(backend, name, now_ms)
        self.partition = Partition(name, 0, 0)
        self.next_offset = 0
        self._backend = backend
        self._key = key

    def end(self) -> int:
        """Return the offset of the next record."""
        return self._backend.log.bounds(self.partition).end

    def read(self) -> Iterator[bytes]:
        """Yield the values of the next records."""
        chunk = self._backend.log.read(self.partition, self.next_offset, READ_BYTES)
        for record in records_of(chunk.records):
            self.next_offset = record.offset + 1
            yield record.value
        self.next_offset = chunk.next_offset

    def append(self, values: Iterable[bytes], fence: Fence | None, now_ms: int) -> None:
        """Append values together. `Fenced` if a newer leader has the fence."""
        records = tuple(
            Record(0, now_ms, Mode.SYNC, Op.INSERT, self._key, None, value) for value in values
        )
        self._backend.commit(Transaction(appends=((self.partition, records),), fence=fence))


def open_sync(backend: Backend, source: str, now_ms: int) -> TaskTopic:
    """Return the sync topic, to be read from the last snapshot of all states."""
    topic = TaskTopic(backend, source + SYNC_SUFFIX, source.encode(), now_ms)
    entry = backend.store.get(SNAPSHOTS + source)
    if entry is not None and entry.value is not None:
        topic.next_offset = int(entry.value)
    return topic


def store_snapshot(backend: Backend, source: str, offset: int) -> None:
    """Have tasks that join read the sync topic from this offset."""
    backend.store.commit(Change(writes={SNAPSHOTS + source: str(offset).encode()}))


def open_heartbeat(backend: Backend, source: str, now_ms: int) -> TaskTopic:
    """Return the heartbeat topic, to be read from its newest events."""
    topic = TaskTopic(backend, source + HEARTBEAT_SUFFIX, source.encode(), now_ms)
    topic.next_offset = max(0, topic.end() - EVENTS_READ_MAX)
    return topic
