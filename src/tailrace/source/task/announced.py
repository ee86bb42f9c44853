"""The units of each task, as the tasks have announced them: for people, by any process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from tailrace.backend.contract import FENCES, Backend
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Partition
from tailrace.reserved_names import SYNC_SUFFIX
from tailrace.source.names import SNAPSHOTS
from tailrace.source.split_state import table_of
from tailrace.source.task.actions import TaskView
from tailrace.source.task.driver import StoredEpoch
from tailrace.source.task.messages import MessageParts
from tailrace.topic.reading import batches_within
from tailrace.topic.view import find


class Announced(NamedTuple):
    """The present epoch, None before the first one, and the last state of each of its members.

    `is_alone` is True if a run reads the source that shares it with no task.
    """

    epoch: StoredEpoch | None
    views: Mapping[str, TaskView]
    is_alone: bool


def read_announced(backend: Backend, source: str) -> Announced:
    """Return what the tasks of a source have announced. Writes nothing."""
    entry = backend.store.get(FENCES + table_of(source))
    if entry is None or not entry.value:
        return Announced(None, {}, entry is not None)
    epoch = msgspec.json.decode(entry.value, type=StoredEpoch)
    snapshot = backend.store.get(SNAPSHOTS + source)
    start = int(snapshot.value) if snapshot is not None and snapshot.value else 0
    parts = MessageParts()
    views: dict[str, TaskView] = {}
    for record in task_records(backend, source + SYNC_SUFFIX, start):
        message = parts.add(record.value)
        if message is None or message.sync_epoch != epoch.id:
            continue
        for state in message.connector_state:
            known = views.get(state.task_id)
            if known is None or known.sequence < state.sequence:
                views[state.task_id] = TaskView.of(state)
    return Announced(epoch, views, is_alone=False)


def task_records(backend: Backend, topic: str, start: int) -> Iterator[Record]:
    """Yield the records of a sync or heartbeat topic from an offset on; none if it does not
    exist."""
    if find(backend, topic) is None:
        return
    where = Partition(topic, 0, 0)
    bounds = backend.log.bounds(where)
    for batch in batches_within(backend.log, where, max(start, bounds.start), bounds.end):
        yield from records_of(batch)


def newest_records(backend: Backend, topic: str, count: int) -> list[Record]:
    """Return about the newest records of a sync or heartbeat topic, at most `count`."""
    if find(backend, topic) is None:
        return []
    end = backend.log.bounds(Partition(topic, 0, 0)).end
    return list(task_records(backend, topic, max(0, end - count)))
