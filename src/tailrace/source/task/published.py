"""What the others know of a task, and when to tell them more. Pure."""

from __future__ import annotations

from typing import Final

from tailrace.source.task.actions import TaskView

UNPACED_UNITS: Final = 500
"""A task of a source with at most so many units tells all its progress at once."""

UNIT_S: Final = 0.000_05
"""Between two messages that only tell progress is at least this time for each unit of the source:
a message has all units of its sender, and every task reads it. Much less than an audit waits."""


class Published:
    """The state that the others know of a task.

    Progress of units may be told late, by the last message of several. Which units a task takes and
    gives away is told at once: a giver forgets a unit only when it sees that the other has it.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.due_at: float | None = None
        """When progress is told that was not told yet; None if there is none."""
        self._view: TaskView | None = None
        self._is_urgent = False
        self._not_before = 0.0

    def again(self) -> None:
        """Have the state told again, also if it has not changed."""
        self._view = None

    def hurry(self) -> None:
        """Have the present change told at once."""
        self._is_urgent = True

    def is_due(self, own: TaskView, now: float) -> bool:
        """True if the state should be told now."""
        before = self._view
        self.due_at = None
        if before is None:
            return True
        is_moving = own.share != before.share
        if not is_moving and own.data == before.data:
            self._is_urgent = False
            return False
        if is_moving or self._is_urgent or now >= self._not_before:
            return True
        self.due_at = self._not_before
        return False

    def told(self, view: TaskView, now: float, units: int) -> None:
        """Know that a state is told, in a source with so many units."""
        self._view = view
        self._is_urgent = False
        self.due_at = None
        self._not_before = now + (UNIT_S * units if units > UNPACED_UNITS else 0.0)
