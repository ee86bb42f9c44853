"""The events that a `Leader` handles: messages of borrowers, deaths, and the store's answers."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tailrace.group.protocol.events import (
    GrantsCommitted,
    GrantsRead,
    GrantsRefused,
    GrantsUnknown,
    Tick,
    UnitsRead,
)
from tailrace.group.protocol.messages import ToLeader


class FromBorrower(NamedTuple):
    """A message of a borrower in a process arrived."""

    process: str
    message: ToLeader


class ProcessLost(NamedTuple):
    """A process died or its lease expired: its borrowers have ended. `why` is for the history."""

    process: str
    why: str


class RosterRead(NamedTuple):
    """The borrowers of this group in a process, by its roster."""

    process: str
    version: int
    connected: frozenset[str]
    connecting: frozenset[str]


LeaderEvent: TypeAlias = (
    FromBorrower
    | ProcessLost
    | RosterRead
    | UnitsRead
    | GrantsCommitted
    | GrantsRefused
    | GrantsUnknown
    | GrantsRead
    | Tick
)
