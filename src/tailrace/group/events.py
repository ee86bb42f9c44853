"""What the `Registry` of a process is told: facts, and the outcome of its actions."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tailrace.group.messages import Message
from tailrace.group.unit import Basis, LeaderEntry, StoredGrant


class Received(NamedTuple):
    """A message came from a process, which may be this one."""

    sender: str
    message: Message


class Subscribed(NamedTuple):
    """A session of this process wants a share of a group.

    A session may subscribe again once it has unsubscribed; what it still drains goes on meanwhile.
    """

    session: str
    group: str
    revoke_timeout_s: float


class Unsubscribed(NamedTuple):
    """A session wants no more. It will be told to drain what it has, and then that it is gone."""

    session: str


class Died(NamedTuple):
    """A session is no more, and has not said goodbye."""

    session: str


class Progressed(NamedTuple):
    """A session has durably acknowledged a unit up to `mark`. `finished`: and the unit ended."""

    session: str
    unit: str
    epoch: int
    mark: int
    finished: bool = False


class Drained(NamedTuple):
    """Answers `Drain`: nothing of the unit is in hand any more, and what was done is durable."""

    session: str
    unit: str
    epoch: int
    mark: int


class Lost(NamedTuple):
    """The backend refused a session's write for a unit: somebody newer has it."""

    session: str
    unit: str
    epoch: int


class LeaderFound(NamedTuple):
    """Who leads a group by the store; `entry` is None when nobody does. Also comes unasked."""

    group: str
    entry: LeaderEntry | None


class Elected(NamedTuple):
    """Answers `Elect`: this process leads the group; the grants of earlier terms that stand."""

    group: str
    term: int
    grants: tuple[StoredGrant, ...]


class UnitsRead(NamedTuple):
    """The units of a group now. Also comes unasked when something changed."""

    group: str
    basis: Basis


class GrantsCommitted(NamedTuple):
    """Answers `CommitGrants`: done. `epoch` is the epoch of every grant in it."""

    group: str
    number: int
    epoch: int


class GrantsRefused(NamedTuple):
    """Answers `CommitGrants`: nothing was done, because a version was not as expected.

    `deposed`: it was that of the leader's own entry.
    """

    group: str
    number: int
    deposed: bool


class GrantsUnknown(NamedTuple):
    """Answers `CommitGrants`: the store failed. It may be done or not."""

    group: str
    number: int


class GrantsRead(NamedTuple):
    """Answers `ReadGrants`: the grants that stand, read as the leader of this term.

    `deposed`: another leads by now.
    """

    group: str
    grants: tuple[StoredGrant, ...]
    deposed: bool


class Gone(NamedTuple):
    """A process is proven to be dead."""

    process: str


class Stalled(NamedTuple):
    """A process has given no sign of life for a whole lease up to `looked_at`, by our own clock."""

    process: str
    looked_at: float


class Beaten(NamedTuple):
    """Answers `Beat`: our own sign of life is there. `sent_at`: when that was asked for.

    `led` are the groups, with terms, that this process leads by the store, read after the beat.
    """

    sent_at: float
    led: tuple[tuple[str, int], ...]


class Tick(NamedTuple):
    """Time has passed. Comes after all input that was waiting."""


Event: TypeAlias = (
    Received
    | Subscribed
    | Unsubscribed
    | Died
    | Progressed
    | Drained
    | Lost
    | LeaderFound
    | Elected
    | UnitsRead
    | GrantsCommitted
    | GrantsRefused
    | GrantsUnknown
    | GrantsRead
    | Gone
    | Stalled
    | Beaten
    | Tick
)
