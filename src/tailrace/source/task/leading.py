"""What the leader task does besides: rebalancing, and placing units that nobody owns."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from tailrace.source.task.actions import (
    Announce,
    Publish,
    ReadTable,
    RemoveMembers,
    StoreEpoch,
    TaskAction,
    TaskView,
)
from tailrace.source.task.balance import placed
from tailrace.source.task.events import Epoch
from tailrace.source.task.messages import MessageType, RebalanceEvent

AUDIT_S: Final = 2.0
"""The time between two reads of the table in which a unit without an owner must be found."""

ANSWER_S: Final = 10.0
"""The time in which a member answers a rebalance event, or is counted as dead."""

SNAPSHOT_EVERY: Final = 500
"""The number of messages after which the leader writes all states again."""


class _Phase(Enum):
    """The progress of a rebalance."""

    NONE = auto()
    GATHERING = auto()
    READING = auto()
    STORING = auto()


class Leading:
    """The part of a `TaskMachine` that only the leader task has."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._phase = _Phase.NONE
        self._generation = 0
        self._members: frozenset[str] = frozenset()
        self._answers: dict[str, TaskView] = {}
        self._unowned: dict[str, bool] = {}
        self._suspects: frozenset[str] = frozenset()
        self._audits_left = 0
        self._heard = 0
        self._audit_at: float | None = None
        self._answer_by: float | None = None

    @property
    def rebalancing(self) -> bool:
        """True from the announcement of a rebalance until its epoch is published."""
        return self._phase is not _Phase.NONE

    def deadline(self) -> float | None:
        """Return the time at which `tick` is due."""
        due = (self._audit_at, self._answer_by)
        return min((time for time in due if time is not None), default=None)

    def begin(self, members: frozenset[str], generation: int, now: float) -> list[TaskAction]:
        """Begin a rebalance of these members, or begin again with others.

        Its generation is the given one, or higher: each event has a generation of its own.
        """
        self._answer_by = now + ANSWER_S
        self._phase = _Phase.GATHERING
        self._generation = max(generation, self._generation + 1)
        self._members = members
        self._answers.clear()
        event = RebalanceEvent(self._generation, tuple(sorted(members)), self._task)
        return [Announce(event)]

    def is_about(self, members: frozenset[str]) -> bool:
        """True if the rebalance in progress is of these members."""
        return self.rebalancing and self._members == members

    def answered(self, task: str, generation: int, view: TaskView) -> list[TaskAction]:
        """Take the answer of a member; read the table once all members have answered."""
        if self._phase is not _Phase.GATHERING or generation != self._generation:
            return []
        if task in self._members:
            self._answers[task] = view
        if self._answers.keys() != self._members:
            return []
        self._phase = _Phase.READING
        self._answer_by = None
        return [ReadTable()]

    def table_read(self, units: Mapping[str, bool]) -> list[TaskAction]:
        """Find the units without an owner, and store the next epoch."""
        if self._phase is not _Phase.READING:
            return []
        owned = listed(self._answers, self._members)
        self._unowned = {unit: finished for unit, finished in units.items() if unit not in owned}
        self._phase = _Phase.STORING
        return [StoreEpoch(self._generation, tuple(sorted(self._members)))]

    def epoch_stored(self, epoch: Epoch) -> dict[str, str] | None:
        """End the rebalance: return the task of each unit without an owner. None if the epoch is
        not that of the rebalance in progress."""
        if self._phase is not _Phase.STORING or epoch.generation != self._generation:
            return None
        self._phase = _Phase.NONE
        unread = [unit for unit, finished in sorted(self._unowned.items()) if not finished]
        return dict.fromkeys(self._unowned, self._task) | placed(
            unread, self._answers, self._members
        )

    def new_epoch(self, epoch: Epoch, own: TaskView) -> Publish:
        """Return the message that begins an epoch."""
        return _of_epoch(MessageType.NEW_EPOCH, epoch, {**self._answers, self._task: own})

    def heard(self, now: float) -> bool:
        """Count a message; True if all states should be written again."""
        self._audits_left = 2
        if self._audit_at is None:
            self._audit_at = now + AUDIT_S
        self._heard += 1
        if self._heard < SNAPSHOT_EVERY:
            return False
        self._heard = 0
        return True

    def tick(self, now: float) -> list[TaskAction]:
        """Remove members that do not answer; read the table to find units without an owner."""
        actions: list[TaskAction] = []
        if self._answer_by is not None and now >= self._answer_by:
            self._answer_by = now + ANSWER_S
            silent = self._members - self._answers.keys() - {self._task}
            actions.append(RemoveMembers(tuple(sorted(silent))))
        if self._audit_at is not None and now >= self._audit_at:
            self._audit_at = now + AUDIT_S
            if not self.rebalancing:
                actions.append(ReadTable())
        return actions

    def audited(self, units: Mapping[str, bool], owned: frozenset[str]) -> frozenset[str]:
        """Return the units without an owner in this and the previous audit."""
        without = frozenset(units) - owned
        confirmed = without & self._suspects
        self._suspects = without - confirmed
        self._audits_left -= 1
        if self._audits_left <= 0 and not without:
            self._audit_at = None
        return confirmed


def update_epoch(epoch: Epoch, views: Mapping[str, TaskView]) -> Publish:
    """Return the message that has all states again."""
    return _of_epoch(MessageType.UPDATE_EPOCH, epoch, views)


def _of_epoch(kind: MessageType, epoch: Epoch, views: Mapping[str, TaskView]) -> Publish:
    return Publish(kind, epoch.generation, epoch.id, epoch.number, dict(views))


def listed(views: Mapping[str, TaskView], members: frozenset[str]) -> frozenset[str]:
    """Return the units that members own, or give to a member."""
    found: set[str] = set()
    for task, view in views.items():
        if task in members:
            found.update(view.data)
            found.update(unit for unit, target in view.share.items() if target in members)
    return frozenset(found)
