"""The other tasks of an epoch, and the last state of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tailrace.source.task.actions import TaskView
from tailrace.source.task.messages import TaskState
from tailrace.source.unit_status import UnitStatus


class Learned(NamedTuple):
    """A newer state of a task. `ended`: splits may have been finished since the one before."""

    task: str
    view: TaskView
    ended: bool


class OtherTasks:
    """The tasks of an epoch without one of them, `task`, who has heard the others."""

    def __init__(self, task: str) -> None:
        self.members: frozenset[str] = frozenset()
        """All members of the epoch, with this task."""
        self.views: dict[str, TaskView] = {}
        self._task = task
        self._taken: dict[str, set[str]] = {}
        self._heard: set[str] = set()

    def begin(self, states: Iterable[TaskState]) -> None:
        """Begin an epoch with the states of all its members."""
        views = {state.task_id: TaskView.of(state) for state in states}
        self.members = frozenset(views)
        views.pop(self._task, None)
        self.views = views
        self._taken.clear()
        self._heard.clear()

    def update(self, state: TaskState) -> Learned | None:
        """Learn the state of another task; None if a later one is known."""
        task = state.task_id
        if task == self._task or task not in self.members:
            return None
        before = self.views.get(task)
        if before is not None and before.sequence >= state.sequence:
            return None
        view = self.views[task] = TaskView.of(state)
        if taken := self._taken.get(task):
            taken.intersection_update(
                unit for unit, target in view.share.items() if target == self._task
            )
        # The state with which the epoch began may be older than its end of a split.
        first = task not in self._heard
        self._heard.add(task)
        return Learned(task, view, first or before is None or _has_ended(before, view))

    @property
    def units(self) -> int:
        """The number of units that the others list."""
        return sum(len(view.data) for view in self.views.values())

    def listed(self, unit: str) -> bool:
        """True if another task counts a unit as its own."""
        return any(unit in view.data for view in self.views.values())

    def offers(self) -> Iterator[str]:
        """Yield the units that others give to this task, each once."""
        for giver, view in self.views.items():
            for unit, target in view.share.items():
                taken = self._taken.setdefault(giver, set())
                if target == self._task and unit not in taken:
                    taken.add(unit)
                    yield unit


def _has_ended(before: TaskView, after: TaskView) -> bool:
    return any(
        after.data.get(unit, UnitStatus.FINISHED) is UnitStatus.FINISHED
        and status is not UnitStatus.FINISHED
        and unit not in after.share
        for unit, status in before.data.items()
    )
