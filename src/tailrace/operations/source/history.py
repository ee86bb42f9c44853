"""The events of a source: its tasks, its epochs, and the units that moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tailrace.amount import format_amount
from tailrace.clock import utc_time
from tailrace.group.protocol.leader.reasons import CLOSED
from tailrace.group.store.history import HistoryLine, read_history
from tailrace.hub.hub import Hub
from tailrace.operations.source.lookup import find_entry
from tailrace.reserved_names import HEARTBEAT_SUFFIX, SYNC_SUFFIX
from tailrace.source.names import LEADER, task_group
from tailrace.source.task.announced import newest_records
from tailrace.source.task.messages import (
    MessageParts,
    MessageType,
    SyncMessage,
    decode_event,
)

MESSAGES_MAX: Final = 10_000
"""The number of newest messages of the sync topic that are searched for units that moved."""

UNITS_MAX: Final = 20
"""Number of units that an event names."""

_TOGETHER: Final = timedelta(seconds=1)
"""Moves between the same two tasks within this time are one event."""


class SourceEventKind(StrEnum):
    """The kinds of events."""

    JOINED = "joined"
    LEFT = "left"
    DIED = "died"
    LEADS = "leads"
    REBALANCE = "rebalance"
    EPOCH = "epoch"
    MOVED = "moved"


_ENDS: Final = (SourceEventKind.LEFT, SourceEventKind.DIED)


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """An event of a source. What does not apply is empty, or 0.

    `task` is the task that joined, left, leads, or has taken units; `before` is the task that had
    them. `generation` counts the changes of the members. `units` names some of the `moved` ones.
    """

    time: datetime
    event: SourceEventKind
    task: str = ""
    generation: int = 0
    before: str = ""
    moved: int = 0
    units: tuple[str, ...] = ()
    why: str = ""


def read_source_history(hub: Hub, name: str, count: int) -> list[SourceEvent]:
    """Return the newest events of a source, at most `count`, the newest last.

    Joins and leaves are those that the group of its tasks has recorded, rebalances those of the
    heartbeat topic. If the process that led the group dies, nobody records the end of its tasks:
    these have died when a rebalance is the first one without them. Epochs and moves are found in
    the newest messages of the sync topic. Raises as `find_entry`.
    """
    backend = hub.backend
    find_entry(hub, name)
    members = list(_of_members(read_history(backend, task_group(name), count * 2)))
    ended = {each.task for each in members if each.event in _ENDS}
    events = [*members, *_rebalances(hub, name, count, ended), *_of_epochs(hub, name)]
    return sorted(events, key=lambda each: each.time)[-count:]


def _of_members(lines: Iterable[HistoryLine]) -> Iterator[SourceEvent]:
    present: set[str] = set()
    for line in lines:
        task = line.consumer
        if line.what == "joined" and task not in present:  # a new leader records them again
            present.add(task)
            yield SourceEvent(line.time, SourceEventKind.JOINED, task)
        elif line.what == "left":
            present.discard(task)
            kind = SourceEventKind.LEFT if line.why == CLOSED else SourceEventKind.DIED
            yield SourceEvent(line.time, kind, task, why=line.why.replace("consumer", "task"))
        elif line.what == "granted" and line.partition == LEADER:
            why = line.why.replace("consumer", "task")
            yield SourceEvent(line.time, SourceEventKind.LEADS, task, why=why)


def _rebalances(hub: Hub, name: str, count: int, ended: set[str]) -> Iterator[SourceEvent]:
    """Yield the rebalances, and the members that disappear without an end that is recorded."""
    before: set[str] = set()
    for record in newest_records(hub.backend, name + HEARTBEAT_SUFFIX, count):
        event, time = decode_event(record.value), utc_time(record.timestamp)
        for task in sorted(before - {*event.members, *ended}):
            yield SourceEvent(time, SourceEventKind.DIED, task, why="it did not leave")
        before = set(event.members)
        members = f"{format_amount(len(event.members), 'task')}: {', '.join(event.members)}"
        kind = SourceEventKind.REBALANCE
        yield SourceEvent(time, kind, event.leader, event.generation, why=members)


def _of_epochs(hub: Hub, name: str) -> list[SourceEvent]:
    parts, found = MessageParts(), _Moves()
    for record in newest_records(hub.backend, name + SYNC_SUFFIX, MESSAGES_MAX):
        message = parts.add(record.value)
        if message is not None:
            found.add(message)
    return found.events


class _Moves:
    """Follows who owns which unit, message by message."""

    def __init__(self) -> None:
        self.events: list[SourceEvent] = []
        self._owners: dict[str, str] = {}
        self._epoch = ""

    def add(self, message: SyncMessage) -> None:
        """Add the events that a message tells."""
        if message.type is MessageType.NEW_EPOCH:
            self._epoch = message.sync_epoch
            tasks = format_amount(len(message.connector_state), "task")
            self.events.append(
                SourceEvent(
                    message.message_timestamp,
                    SourceEventKind.EPOCH,
                    message.task_id,
                    message.generation,
                    why=f"agreed by {tasks}",
                )
            )
        elif message.sync_epoch != self._epoch and self._epoch:
            return  # of an earlier epoch
        for state in message.connector_state:
            taken: dict[str, list[str]] = {}
            for unit in state.data.units:
                before = self._owners.get(unit, "")
                if before and before != state.task_id:
                    taken.setdefault(before, []).append(unit)
                self._owners[unit] = state.task_id
            for before, units in taken.items():
                self._move(message, state.task_id, before, units)

    def _move(self, message: SyncMessage, task: str, before: str, units: list[str]) -> None:
        event = SourceEvent(
            message.message_timestamp,
            SourceEventKind.MOVED,
            task,
            message.generation,
            before,
            len(units),
            tuple(units[:UNITS_MAX]),
        )
        last = self.events[-1] if self.events else None
        if last is not None and _belong_together(last, event):
            names = (*last.units, *event.units)[:UNITS_MAX]
            self.events[-1] = replace(last, moved=last.moved + event.moved, units=names)
        else:
            self.events.append(event)


def _belong_together(last: SourceEvent, event: SourceEvent) -> bool:
    same = (last.event, last.task, last.before) == (event.event, event.task, event.before)
    return same and event.time - last.time <= _TOGETHER
