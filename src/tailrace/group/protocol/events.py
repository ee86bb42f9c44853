"""The events that the `Registry` of a process handles: facts, and the outcomes of its actions."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tailrace.group.protocol.messages import Message
from tailrace.group.protocol.unit import Basis, LeaderEntry, StoredGrant


class Received(NamedTuple):
    """A message of a process, which may be this one, arrived."""

    sender: str
    message: Message


class Subscribed(NamedTuple):
    """A session of this process joins a group.

    A session may subscribe again after it unsubscribed; units that it still drains are not
    disturbed.
    """

    session: str
    group: str
    revoke_timeout_s: float


class Unsubscribed(NamedTuple):
    """A session leaves its group. It is asked to drain its units, then gets `Departed`."""

    session: str


class Died(NamedTuple):
    """A session ended without unsubscribing."""

    session: str


class Progressed(NamedTuple):
    """A session has durably acknowledged a unit up to `mark`. `finished`: to the unit's end."""

    session: str
    unit: str
    epoch: int
    mark: int
    finished: bool = False


class Drained(NamedTuple):
    """The answer to `Drain`: no delivery of the unit is in flight, and progress is durable."""

    session: str
    unit: str
    epoch: int
    mark: int


class Lost(NamedTuple):
    """The backend refused a session's write for a unit: a newer epoch has fenced it."""

    session: str
    unit: str
    epoch: int


class LeaderFound(NamedTuple):
    """The leader of a group by the store; `entry` is None if there is none. Also posted unasked.

    `removed_at` is the version at which a watched leader was removed: a later leader stands.
    """

    group: str
    entry: LeaderEntry | None
    removed_at: int | None = None


class Elected(NamedTuple):
    """The answer to `Elect`: this process leads the group. `grants` are those of earlier terms."""

    group: str
    term: int
    grants: tuple[StoredGrant, ...]


class UnitsRead(NamedTuple):
    """The units of a group now. Also posted unasked after a change."""

    group: str
    basis: Basis


class GrantsCommitted(NamedTuple):
    """The answer to `CommitGrants`: committed. `epoch` is the epoch of every grant in it."""

    group: str
    number: int
    epoch: int


class GrantsRefused(NamedTuple):
    """The answer to `CommitGrants`: nothing was committed, because a version was not as expected.

    `deposed`: that version was the one of the leader's own entry.
    """

    group: str
    number: int
    deposed: bool


class GrantsUnknown(NamedTuple):
    """The answer to `CommitGrants`: the store failed. The commit may have happened or not."""

    group: str
    number: int


class GrantsRead(NamedTuple):
    """The answer to `ReadGrants`: the present grants.

    `deposed`: the term has ended; another process leads or none does.
    """

    group: str
    grants: tuple[StoredGrant, ...]
    deposed: bool


class Gone(NamedTuple):
    """A process is dead: nobody holds its name."""

    process: str


class Stalled(NamedTuple):
    """A process has sent no heartbeat for a whole lease up to `probed_at`, by the local clock."""

    process: str
    probed_at: float


class Beaten(NamedTuple):
    """The answer to `Beat`: the heartbeat is visible. `sent_at`: when it was requested.

    `led` are the groups, with terms, that this process leads by the store, read after the beat.
    """

    sent_at: float
    led: tuple[tuple[str, int], ...]


class Tick(NamedTuple):
    """Time has passed. Handled after every event that was queued."""


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
