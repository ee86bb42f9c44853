"""One task of a source, the messages of others, and what it does when it hears them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from tailrace.source.task.actions import Publish, TaskAction, TaskView
from tailrace.source.task.events import (
    Claimed,
    Epoch,
    Heard,
    MembersRebalanced,
    TaskEvent,
    TaskTick,
)
from tailrace.source.task.machine import TaskMachine
from tailrace.source.task.messages import (
    MessageType,
    OwnedUnits,
    RebalanceEvent,
    SharedUnits,
    SyncMessage,
    TaskState,
)
from tailrace.source.unit_status import UnitStatus

READING, WAITING = UnitStatus.READING, UnitStatus.WAITING
READ, FINISHED = UnitStatus.READ, UnitStatus.FINISHED

WHEN = datetime(2026, 3, 4, 5, 6, 7, 890_000, UTC)

Units = Iterable[str] | Mapping[str, UnitStatus]
A = TypeVar("A")


def statuses(units: Units) -> dict[str, UnitStatus]:
    """Return the statuses of units, which are being read if nothing else is said."""
    return dict(units) if isinstance(units, Mapping) else dict.fromkeys(units, READING)


def view(units: Units = (), share: Mapping[str, str] | None = None, sequence: int = 1) -> TaskView:
    return TaskView(sequence, statuses(units), dict(share or {}))


def state(
    task: str, units: Units = (), share: Mapping[str, str] | None = None, sequence: int = 1
) -> TaskState:
    data = OwnedUnits(statuses(units))
    return TaskState(task, WHEN, sequence, data, SharedUnits(dict(share or {})))


def epoch(generation: int) -> Epoch:
    return Epoch(f"epoch {generation}", generation, 100 + generation)


def message(
    type: MessageType, generation: int, *states: TaskState, sender: str | None = None
) -> SyncMessage:
    """Return a message of the epoch of this generation."""
    id, _, number = epoch(generation)
    sender = sender or states[0].task_id
    return SyncMessage(id, sender, WHEN, states, type, generation, number, states[0].sequence)


class OneTask:
    """A machine, its time, and the actions of the last event."""

    def __init__(self, task: str = "a", *, ends: bool = False) -> None:
        self.machine = TaskMachine(task, ends=ends)
        self.now = 0.0
        self.actions: list[TaskAction] = []

    def handle(self, event: TaskEvent) -> list[TaskAction]:
        """Handle an event, and check the machine."""
        self.actions = self.machine.handle(event, self.now)
        self.machine.validate()
        return self.actions

    def tick(self, after_s: float = 0.0) -> list[TaskAction]:
        """Let time pass."""
        self.now += after_s
        return self.handle(TaskTick())

    def begin(self, generation: int, *states: TaskState) -> list[TaskAction]:
        """Hear that an epoch begins with these states."""
        return self.handle(Heard(message(MessageType.NEW_EPOCH, generation, *states)))

    def hear(self, told: TaskState, generation: int = 1) -> list[TaskAction]:
        """Hear the state of another task."""
        return self.handle(Heard(message(MessageType.REGULAR, generation, told)))

    def rebalance(self, generation: int, members: str = "ab") -> list[TaskAction]:
        """Hear of a rebalance."""
        event = RebalanceEvent(generation, tuple(members), "b")
        return self.handle(MembersRebalanced(event))

    def own(self, units: Units) -> list[TaskAction]:
        """Own units from now on, whatever their earlier owner thinks."""
        return self.handle(Claimed(statuses(units), frozenset()))

    def did(self, kind: type[A]) -> list[A]:
        """Return the actions of a kind of the last event."""
        return [action for action in self.actions if isinstance(action, kind)]

    @property
    def told(self) -> TaskView | None:
        """The state that the last event had it tell the others; None if it told nothing."""
        found = [
            each.states[self.machine.task]
            for each in self.did(Publish)
            if each.type is MessageType.REGULAR
        ]
        return found[-1] if found else None


def a_member(own: Units = (), *others: TaskState, ends: bool = False) -> OneTask:
    """Return task `a` in the epoch of generation 1, which owns these units."""
    task = OneTask(ends=ends)
    task.begin(1, state("a"), *(others or (state("b"),)))
    task.own(own)
    return task
