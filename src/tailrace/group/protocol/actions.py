"""The actions that the `Registry` of a process requests.

An action may fail, or be executed late or never: the registry repeats every action that matters.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tailrace.group.protocol.messages import Message


class Send(NamedTuple):
    """Send a message to a process, which may be this one. The message may get lost."""

    process: str
    message: Message


class Install(NamedTuple):
    """The session owns the unit: it reads the ledger, then delivers while `until` allows it."""

    session: str
    unit: str
    epoch: int


class Drain(NamedTuple):
    """The session must finish the unit's deliveries that are in flight, then post `Drained`."""

    session: str
    unit: str
    epoch: int


class Drop(NamedTuple):
    """The session no longer owns the unit: it forgets the unit and commits nothing more."""

    session: str
    unit: str
    epoch: int


class Departed(NamedTuple):
    """The answer to `Unsubscribed`: the session has left its group, drained as far as possible."""

    session: str


class FindLeader(NamedTuple):
    """Read the leader of a group. Answered by `LeaderFound`."""

    group: str


class Elect(NamedTuple):
    """Make this process the leader, if the group's leader entry still has this version (0: none).

    Answered by `Elected`, or by `LeaderFound` if another process was faster. The registry repeats
    an election that gets no answer.
    """

    group: str
    version: int


class Resign(NamedTuple):
    """Remove the group's leader entry, if it still has this term. Not answered."""

    group: str
    term: int


class ReadUnits(NamedTuple):
    """Read the units of a group. Answered by `UnitsRead`."""

    group: str


class ReadGrants(NamedTuple):
    """Read the grants of a group. Answered by `GrantsRead`."""

    group: str
    term: int


class NewGrant(NamedTuple):
    """A unit to be granted. `replaces` is the epoch of its present grant, 0 if it has none."""

    unit: str
    borrower: str
    process: str
    replaces: int


class CommitGrants(NamedTuple):
    """Commit the grants and remove those in `freed`, all or nothing.

    The commit expects the leader's entry at `term`, every version of the basis, and every replaced
    or freed grant at its epoch. It raises the fence of every unit in it. Answered by
    `GrantsCommitted`, `GrantsRefused` or `GrantsUnknown`.
    """

    group: str
    number: int
    term: int
    versions: tuple[tuple[str, int], ...]
    granted: tuple[NewGrant, ...]
    freed: tuple[tuple[str, int], ...]


class Probe(NamedTuple):
    """Check whether a process is dead or stalled. Answered by `Gone` or `Stalled` if it is."""

    process: str


class Beat(NamedTuple):
    """Send a heartbeat, then read which groups this process leads. Answered by `Beaten`."""

    sent_at: float


class WriteHistory(NamedTuple):
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
    | FindLeader
    | Elect
    | Resign
    | ReadUnits
    | ReadGrants
    | CommitGrants
    | Probe
    | Beat
    | WriteHistory
)
