"""Sources described: their tasks, namespaces and splits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from tailrace.clock import utc_time
from tailrace.delivery.dead_letters.mailbox import Mailbox
from tailrace.errors import UnknownSource
from tailrace.group.store.presence import Presence, members
from tailrace.hub.hub import Hub
from tailrace.operations.source.lookup import find_entry
from tailrace.operations.topic.describe import topic_amount
from tailrace.operations.topic.lookup import find_topic
from tailrace.pipeline.catalog import pipelines
from tailrace.source.catalog import SourceEntry, source_names
from tailrace.source.names import task_group
from tailrace.source.namespace_meter import NamespaceMeter
from tailrace.source.report import NamespaceProgress, NamespaceState
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import read_splits
from tailrace.source.task.announced import Announced, read_announced
from tailrace.source.task.task_record import TaskRecord, read_records
from tailrace.source.unit_status import UnitStatus


@dataclass(frozen=True, slots=True)
class SourceTask:
    """A task of a source. `process` is None if its process has died, and nobody has noticed yet.

    `units` counts the units that it owns, as it has announced them: `reading` of them are being
    read, `waiting` ones wait for splits that are not finished.
    """

    id: str
    process: str | None
    since: datetime
    leads: bool
    units: int
    reading: int
    waiting: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class WaitingSplit:
    """A split that has not begun, and the splits that it follows which are not finished.

    `unmet` are those of them that no split has reported, or that were removed.
    """

    split: str
    namespace: str
    waits_for: tuple[str, ...]
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndedTask:
    """A task that has ended or was killed: then `ended` is None. See `TaskRecord`."""

    id: str
    process: str
    started: datetime
    ended: datetime | None
    follows: bool
    caught_up: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source as it is now.

    `pipeline` is True for the source of a pipeline, which has its name; `alone` is True if the
    pipeline reads it by itself, so that no task shares it. `epoch` counts the changes of its
    members. `begun` is False until its first splits are stored. `splits` counts the splits that
    exist, `unfinished` those that are not read to their end, and `waiting` has the unfinished ones
    that have to wait. `records` counts the records in the commit log. `reader_waits` is why the
    readers of all running tasks find nothing to read. `ended` has the tasks that ended since the
    last one began, the last one last. `followed_by` are the pipelines that consume the commit log.
    """

    name: str
    reader: str
    commit_log: str
    dead_letters: str
    pipeline: bool
    alone: bool
    epoch: int
    begun: bool
    splits: int
    unfinished: int
    waiting: tuple[WaitingSplit, ...]
    records: int
    unreadable: int
    reader_waits: str | None
    tasks: tuple[SourceTask, ...]
    ended: tuple[EndedTask, ...]
    namespaces: tuple[NamespaceProgress, ...]
    followed_by: tuple[str, ...]
    run_command: str

    @property
    def running(self) -> tuple[SourceTask, ...]:
        """The tasks whose processes live."""
        return tuple(task for task in self.tasks if task.process is not None)

    @property
    def killed(self) -> tuple[EndedTask, ...]:
        """The tasks that died."""
        return tuple(task for task in self.ended if task.ended is None)

    @property
    def copying(self) -> bool:
        """True if some rows are not copied yet, or wait for that."""
        left = (NamespaceState.COPYING, NamespaceState.WAITING)
        return any(each.state in left for each in self.namespaces)

    @property
    def unread(self) -> bool:
        """True if there was something left to read when the last task ended."""
        if self.running or self.alone:
            return False
        if not self.begun or self.copying:
            return True
        return bool(self.unfinished) and any(not each.caught_up for each in self.ended)


class SourceWatch:
    """Looks at the sources of a hub again and again: rates are known from the second look on."""

    def __init__(self, hub: Hub, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._hub = hub
        self._monotonic = monotonic
        self._meters: dict[str, NamespaceMeter] = {}

    def look(self, name: str | None = None) -> list[SourceView]:
        """Return all sources, without those that are forgotten meanwhile, or the one of a name.

        Raises as `find_entry`.
        """
        if name is not None:
            return [self._view(name)]
        found = []
        for each in source_names(self._hub.backend.store):
            with contextlib.suppress(UnknownSource):
                found.append(self._view(each))
        return found

    def _view(self, name: str) -> SourceView:
        if name not in self._meters:
            self._meters[name] = NamespaceMeter(self._hub.backend, name, self._monotonic)
        return _view(self._hub, name, self._meters[name])


def view_sources(hub: Hub) -> list[SourceView]:
    """Return all sources, by name."""
    return SourceWatch(hub).look()


def view_source(hub: Hub, name: str) -> SourceView:
    """Return a source. Raises as `find_entry`."""
    (view,) = SourceWatch(hub).look(name)
    return view


def count_source_letters(hub: Hub, source: SourceEntry) -> int:
    """Return the number of pending dead letters of a source's reader."""
    if source.dead_letters not in hub.topics():
        return 0
    mailbox = Mailbox(find_topic(hub, source.dead_letters).view, source.dead_letters)
    return mailbox.count_by_writer().get(None, 0)


class _Splits(NamedTuple):
    """The splits of a source, counted."""

    begun: bool
    splits: int
    unfinished: int
    waiting: tuple[WaitingSplit, ...]
    namespaces: tuple[NamespaceProgress, ...]


def _view(hub: Hub, name: str, meter: NamespaceMeter) -> SourceView:
    backend = hub.backend
    entry = find_entry(hub, name)
    found = members(backend, task_group(name))
    announced = read_announced(backend, name)
    records = read_records(backend, name)
    splits = _splits(hub, name, meter)
    log = find_topic(hub, entry.commit_log) if entry.commit_log in hub.topics() else None
    alive = {each.session for each in found if each.owner is not None}
    return SourceView(
        name=name,
        reader=entry.reader,
        commit_log=entry.commit_log,
        dead_letters=entry.dead_letters,
        pipeline=entry.of_pipeline,
        alone=announced.is_alone and entry.of_pipeline,
        epoch=0 if announced.epoch is None else announced.epoch.generation,
        begun=splits.begun,
        splits=splits.splits,
        unfinished=splits.unfinished,
        waiting=splits.waiting,
        records=0 if log is None else topic_amount(hub, log).records,
        unreadable=count_source_letters(hub, entry),
        reader_waits=_reader_waits(records, alive),
        tasks=tuple(_task(each, announced) for each in found),
        ended=_ended(records, alive),
        namespaces=splits.namespaces,
        followed_by=tuple(each.name for each in pipelines(backend.store) if each.source == name),
        run_command=entry.run_command,
    )


def _splits(hub: Hub, name: str, meter: NamespaceMeter) -> _Splits:
    stored = read_splits(hub.backend, name)
    graph = SplitGraph.of(stored)
    unfinished = [each for each in sorted(graph.states) if not graph.is_finished(each)]
    waiting = tuple(
        WaitingSplit(
            each,
            graph.states[each].split.namespace,
            tuple(follows),
            tuple(other for other in follows if other not in graph.states),
        )
        for each in unfinished
        if (follows := graph.waits_for(each))
    )
    total = len(graph.states)
    return _Splits(stored.begun, total, len(unfinished), waiting, meter.measure(graph))


def _task(member: Presence, announced: Announced) -> SourceTask:
    view = announced.views.get(member.session)
    statuses = [] if view is None else list(view.data.values())
    return SourceTask(
        id=member.session,
        process=member.owner,
        since=member.since,
        leads=announced.epoch is not None and announced.epoch.leader == member.session,
        units=len(statuses),
        reading=statuses.count(UnitStatus.READING),
        waiting=statuses.count(UnitStatus.WAITING),
        silent_s=member.silent_s,
    )


def _reader_waits(records: dict[str, TaskRecord], alive: set[str]) -> str | None:
    """Return why the readers of all running tasks find nothing to read; None if one has."""
    running = [record.waiting for task, record in records.items() if task in alive]
    return next(iter(running), None) if all(running) else None


def _ended(records: dict[str, TaskRecord], alive: set[str]) -> tuple[EndedTask, ...]:
    ended = [
        EndedTask(
            task,
            each.process,
            utc_time(each.started_ms),
            None if each.ended_ms is None else utc_time(each.ended_ms),
            each.follows,
            each.caught_up,
            each.error,
        )
        for task, each in records.items()
        if task not in alive
    ]
    return tuple(sorted(ended, key=lambda each: each.ended or each.started))
