"""What a `Leader` is told: what borrowers say, which of them live, and what the store has."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tailrace.group.events import (
    GrantsCommitted,
    GrantsRead,
    GrantsRefused,
    GrantsUnknown,
    Tick,
    UnitsRead,
)
from tailrace.group.messages import ToLeader


class Heard(NamedTuple):
    """A message came from a borrower of a process."""

    process: str
    message: ToLeader


class ProcessLost(NamedTuple):
    """The borrowers of a process are no more."""

    process: str
    why: str


class RosterRead(NamedTuple):
    """A process has these borrowers of this group; of the connected it believes that we know."""

    process: str
    version: int
    connected: frozenset[str]
    connecting: frozenset[str]


LeaderEvent: TypeAlias = (
    Heard
    | ProcessLost
    | RosterRead
    | UnitsRead
    | GrantsCommitted
    | GrantsRefused
    | GrantsUnknown
    | GrantsRead
    | Tick
)
