"""The actions of a `TaskMachine`. Its driver carries them out in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from tailrace.source.task.messages import MessageType, RebalanceEvent, TaskState
from tailrace.source.unit_status import LOADS, UnitStatus


class TaskView(NamedTuple):
    """The state of a task, as another one knows it."""

    sequence: int
    data: Mapping[str, UnitStatus]
    share: Mapping[str, str]

    @property
    def load(self) -> int:
        """The number of its units in which there is something left to read."""
        statuses = list(self.data.values())
        return sum(map(statuses.count, LOADS))

    @classmethod
    def of(cls, state: TaskState) -> TaskView:
        """Return the view of a state in a message."""
        return cls(state.sequence, state.data.units, state.share.units)


class Publish(NamedTuple):
    """Append a message to the sync topic; those of an epoch under the fence of the leader."""

    type: MessageType
    generation: int
    epoch: str
    epoch_number: int
    states: Mapping[str, TaskView]


class Announce(NamedTuple):
    """Append an event to the heartbeat topic, under the fence of the leader."""

    event: RebalanceEvent


class RemoveMembers(NamedTuple):
    """Remove these tasks from the members: they join again as new tasks."""

    tasks: tuple[str, ...]


class ReadTable(NamedTuple):
    """Read all splits; post `TableRead`."""


class StoreEpoch(NamedTuple):
    """Store the entry of a new epoch, expecting that this task leads; post `EpochStored`."""

    generation: int
    members: tuple[str, ...]


class Claim(NamedTuple):
    """Raise the fences of units, expecting this epoch, and read them from now on; post `Claimed` or
    `ClaimRefused`."""

    units: tuple[str, ...]
    epoch_number: int


class Release(NamedTuple):
    """Read these units no longer."""

    units: tuple[str, ...]


class CheckOwned(NamedTuple):
    """Release those of these units that have a newer owner; post `StillOwned`."""

    units: tuple[str, ...]


class RemoveUnneeded(NamedTuple):
    """Look for own finished splits that nothing follows any more."""


class Rejoin(NamedTuple):
    """The other members count this task as dead: release everything, and join as a new task."""


class End(NamedTuple):
    """Every task has read everything within its `Until`."""


TaskAction: TypeAlias = (
    Publish
    | Announce
    | RemoveMembers
    | ReadTable
    | StoreEpoch
    | Claim
    | Release
    | CheckOwned
    | RemoveUnneeded
    | Rejoin
    | End
)
