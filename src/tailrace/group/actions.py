"""What the `Registry` of a process wants done.

An action may fail, be carried out late, or never: whatever must happen is asked for again.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tailrace.group.messages import Message


class Send(NamedTuple):
    """Send a message to a process, which may be this one. It may get lost."""

    process: str
    message: Message


class Install(NamedTuple):
    """The session owns the unit: read its ledger, then consume, as long as `until` allows."""

    session: str
    unit: str
    epoch: int


class Drain(NamedTuple):
    """The session is to finish what it has in hand of the unit, and to answer `Drained`."""

    session: str
    unit: str
    epoch: int


class Drop(NamedTuple):
    """The session no longer owns the unit: it forgets it, and commits nothing more."""

    session: str
    unit: str
    epoch: int


class Departed(NamedTuple):
    """Answers `Unsubscribed`: the leader has been told, and all that could be drained was."""

    session: str


class Look(NamedTuple):
    """Read who leads a group. Answered by `LeaderFound`."""

    group: str


class Elect(NamedTuple):
    """Make this process the leader, if the group's leader entry still has this version (0: none).

    Answered by `Elected`, or by `LeaderFound` when another was faster. No answer is tried again.
    """

    group: str
    version: int


class Resign(NamedTuple):
    """Remove the group's leader entry, if it still is that of this term. Not answered."""

    group: str
    term: int


class ReadUnits(NamedTuple):
    """Derive the units of a group afresh. Answered by `UnitsRead`."""

    group: str


class ReadGrants(NamedTuple):
    """Read the grants of a group again. Answered by `GrantsRead`."""

    group: str
    term: int


class NewGrant(NamedTuple):
    """A unit to be granted; `replaces` is the epoch of the grant that stands, 0 for none."""

    unit: str
    borrower: str
    process: str
    replaces: int


class CommitGrants(NamedTuple):
    """Commit, in one step or not at all: the grants, and the end of those in `freed`.

    Expects the leader's entry at `term`, every version of the basis, and every grant that is
    replaced or freed at its epoch. Raises the fence of every unit named. Answered by
    `GrantsCommitted`, `GrantsRefused` or `GrantsUnknown`.
    """

    group: str
    number: int
    term: int
    versions: tuple[tuple[str, int], ...]
    granted: tuple[NewGrant, ...]
    freed: tuple[tuple[str, int], ...]


class Probe(NamedTuple):
    """Look whether a process is dead or stalled. Answered by `Gone` or `Stalled` if it is."""

    process: str


class Beat(NamedTuple):
    """Give a sign of life, then read which groups this process leads. Answered by `Beaten`."""

    sent_at: float


class Record(NamedTuple):
    """Write a line of the group's history."""

    group: str
    what: str
    unit: str = ""
    borrower: str = ""
    epoch: int = 0
    why: str = ""


Action: TypeAlias = (
    Send
    | Install
    | Drain
    | Drop
    | Departed
    | Look
    | Elect
    | Resign
    | ReadUnits
    | ReadGrants
    | CommitGrants
    | Probe
    | Beat
    | Record
)
