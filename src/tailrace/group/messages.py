"""What borrowers and leaders say to each other.

Every message may be lost, delayed, doubled and overtaken by others; none relies on another one
having come. A message about a unit carries the epoch of its grant, and changes nothing where the
epoch is not the one that its receiver knows. Messages of a leader carry its term.

Pings and their answers are between processes, not between borrowers: a process asks every process
that leads one of its groups whether it is still there, and for all of its borrowers at once.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A unit that a borrower has been granted."""

    unit: str
    epoch: int
    revoking: bool = False


class LeaderWanted(msgspec.Struct, frozen=True, tag=True):
    """Borrower to leader: take me in, with what an earlier term granted me.

    `revoke_timeout_s` is how long this borrower may take to let go of a unit. Lists of borrowers
    from `roster_version` on have it.
    """

    group: str
    borrower: str
    held: tuple[Held, ...]
    revoke_timeout_s: float
    roster_version: int


class LeaderConnectResponse(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: you are in, and of what you presented you keep `kept`."""

    group: str
    borrower: str
    term: int
    presented: tuple[Held, ...]
    kept: tuple[Held, ...]


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Process to process: I live, and my list of borrowers has this version."""

    number: int
    roster_version: int


class PingResponse(msgspec.Struct, frozen=True, tag=True):
    """Process to process: so do I. Of your lists of borrowers I go by this version, and of the
    groups that they share I lead `led`, each in this term, and know all that it says are connected.
    """

    number: int
    roster_version: int
    led: tuple[tuple[str, int], ...]


class Roster(msgspec.Struct, frozen=True, tag=True):
    """Process to process: the borrowers that live here of groups that you lead.

    Each with its group. Of those that are `connected` you have said so; the others want to be.
    """

    version: int
    connected: tuple[tuple[str, str], ...]
    connecting: tuple[tuple[str, str], ...]


class Grant(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: the unit is yours. Answered by `UpdateProgress`."""

    group: str
    borrower: str
    term: int
    unit: str
    epoch: int


class Revoke(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: finish what you have in hand of the unit and report it as final."""

    group: str
    borrower: str
    term: int
    unit: str
    epoch: int


class Revoked(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: the unit is no longer yours. Answered by `RevokeFinished`."""

    group: str
    borrower: str
    term: int
    unit: str
    epoch: int


class RevokeFinished(msgspec.Struct, frozen=True, tag=True):
    """Borrower to leader: I have forgotten the unit."""

    group: str
    borrower: str
    unit: str
    epoch: int


class UpdateProgress(msgspec.Struct, frozen=True, tag=True):
    """Borrower to leader: all below `mark` is acknowledged.

    `final` says that this is durable, that nothing is in hand and nothing will be. `finished` says
    that it is durable and that the unit has come to its end.
    """

    group: str
    borrower: str
    unit: str
    epoch: int
    mark: int
    final: bool = False
    finished: bool = False


class Disconnect(msgspec.Struct, frozen=True, tag=True):
    """Borrower to leader: I am gone. What I had is durable and free."""

    group: str
    borrower: str


class Invalidate(msgspec.Struct, frozen=True, tag=True):
    """Leader to borrower: I do not know you. Begin again as another."""

    group: str
    borrower: str
    term: int


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
