"""The events that a `TaskMachine` handles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from tailrace.source.task.messages import RebalanceEvent, SyncMessage
from tailrace.source.unit_status import UnitStatus


class Epoch(NamedTuple):
    """An epoch of a source. `number` is the version of its store entry."""

    id: str
    generation: int
    number: int


class Heard(NamedTuple):
    """The sync topic has this message. Also the messages of the task itself, in the order of the
    topic."""

    message: SyncMessage


class MembersRebalanced(NamedTuple):
    """The heartbeat topic has this event."""

    event: RebalanceEvent


class LeaderElected(NamedTuple):
    """The task is the leader task from now on. It has heard everything up to here."""


class LeaderDeposed(NamedTuple):
    """The task is not the leader task any more."""


class MembersFound(NamedTuple):
    """The live members of the source. Only for the leader task."""

    members: frozenset[str]


class MembershipLost(NamedTuple):
    """The task is not among the members any more: another has counted it as dead."""


class TableRead(NamedTuple):
    """The outcome of `ReadTable`: all units, each with True if it is finished, and those of which a
    split that is not finished may start."""

    units: Mapping[str, bool]
    startable: frozenset[str]


class EpochStored(NamedTuple):
    """The outcome of `StoreEpoch`."""

    epoch: Epoch


class Claimed(NamedTuple):
    """The outcome of `Claim`: the units that the task owns now. Those of `gone` have no splits."""

    units: Mapping[str, UnitStatus]
    gone: frozenset[str]


class ClaimRefused(NamedTuple):
    """The outcome of `Claim` in an epoch that has ended."""

    units: frozenset[str]


class StillOwned(NamedTuple):
    """The outcome of `CheckOwned`: those of the units that the task still owns."""

    units: frozenset[str]


class UnitsProgressed(NamedTuple):
    """What reading has changed: the status of owned units, and units that the task now owns without
    a claim yet (`reported`), that were `removed`, or that a newer owner has taken (`lost`)."""

    statuses: Mapping[str, UnitStatus]
    reported: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()


class TaskTick(NamedTuple):
    """Time has passed."""


TaskEvent: TypeAlias = (
    Heard
    | MembersRebalanced
    | LeaderElected
    | LeaderDeposed
    | MembersFound
    | MembershipLost
    | TableRead
    | EpochStored
    | Claimed
    | ClaimRefused
    | StillOwned
    | UnitsProgressed
    | TaskTick
)
