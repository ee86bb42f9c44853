"""The messages between borrowers and leaders.

Any message may be lost, delayed, duplicated or reordered; no message relies on an earlier one
having arrived. A message about a unit carries the epoch of its grant, and changes nothing if the
receiver knows another epoch. Messages of a leader carry its term.

Pings and their answers are between processes, not between borrowers: a process pings every process
that leads one of its groups, for all of its borrowers at once.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class HeldUnit(msgspec.Struct, frozen=True, array_like=True):
    """A unit that a borrower has been granted."""

    unit: str
    epoch: int
    revoking: bool = False


class LeaderWanted(msgspec.Struct, frozen=True, tag=True):
    """Borrower to leader: accept this borrower, which holds these units of an earlier term.

    `revoke_timeout_s` is the longest time that the borrower may take to release a unit. Rosters
    from `roster_version` on list it.
    """

    group: str
    borrower: str
    held: tuple[HeldUnit, ...]
    revoke_timeout_s: float
    roster_version: int


class LeaderConnectResponse(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: accepted. Of the presented units the borrower keeps `kept`."""

    group: str
    borrower: str
    term: int
    presented: tuple[HeldUnit, ...]
    kept: tuple[HeldUnit, ...]


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Process to process: alive; the roster of its borrowers has this version."""

    number: int
    roster_version: int


class PingResponse(msgspec.Struct, frozen=True, tag=True):
    """Process to process: the answer to a ping.

    `roster_version` is the newest roster that arrived. `led` are the groups, with terms, that this
    process leads and in which it knows every borrower that the roster lists as connected.
    """

    number: int
    roster_version: int
    led: tuple[tuple[str, int], ...]


class Roster(msgspec.Struct, frozen=True, tag=True):
    """Process to process: the borrowers of the sender in groups that the receiver leads.

    Each with its group. The receiver has accepted those in `connected`; those in `connecting` wait
    to be accepted.
    """

    version: int
    connected: tuple[tuple[str, str], ...]
    connecting: tuple[tuple[str, str], ...]


class Grant(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: the unit is granted. Answered by `UpdateProgress`."""

    group: str
    borrower: str
    term: int
    unit: str
    epoch: int


class Revoke(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: finish the unit's deliveries in flight, then report final progress."""

    group: str
    borrower: str
    term: int
    unit: str
    epoch: int


class Revoked(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: the unit is no longer granted. Answered by `RevokeFinished`."""

    group: str
    borrower: str
    term: int
    unit: str
    epoch: int


class RevokeFinished(msgspec.Struct, frozen=True, tag=True):
    """Borrower to leader: the borrower has forgotten the unit."""

    group: str
    borrower: str
    unit: str
    epoch: int


class UpdateProgress(msgspec.Struct, frozen=True, tag=True):
    """Borrower to leader: every record below `mark` is acknowledged.

    `final`: progress is durable, and no delivery is in flight or will be. `finished`: progress is
    durable and has reached the end of the unit.
    """

    group: str
    borrower: str
    unit: str
    epoch: int
    mark: int
    final: bool = False
    finished: bool = False


class Disconnect(msgspec.Struct, frozen=True, tag=True):
    """Borrower to leader: the borrower has ended; its progress is durable, its units free."""

    group: str
    borrower: str


class Invalidate(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: the borrower is unknown. Its session must connect again as another.

    `wanted` answers a `LeaderWanted`: the leader removed the borrower earlier in this term.
    """

    group: str
    borrower: str
    term: int
    wanted: bool = False


Message: TypeAlias = (
    LeaderWanted
    | LeaderConnectResponse
    | Ping
    | PingResponse
    | Roster
    | Grant
    | Revoke
    | Revoked
    | RevokeFinished
    | UpdateProgress
    | Disconnect
    | Invalidate
)

ToLeader: TypeAlias = LeaderWanted | RevokeFinished | UpdateProgress | Disconnect
ToBorrower: TypeAlias = LeaderConnectResponse | Grant | Revoke | Revoked | Invalidate
