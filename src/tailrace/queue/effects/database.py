"""The contract of a database of effects, and the values that it stores.

Two tables are in the database of the user::

    tailrace_owners    consumer, generation, unit, epoch, attempt     the owner of each unit
    tailrace_effects   consumer, unit, stream, block, done            the stored messages

A unit writes only rows of its own: after a change of the number of shards, messages of one stream
belong to several units. A new generation reads the rows of all earlier ones.

`epoch` is that of the owner's grant. `attempt` rises when the owner reads its rows again after a
failed commit. A commit has to find its own epoch and attempt, so a commit that reaches the server
late, after its rows were read, stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from tailrace.errors import Error
from tailrace.subscription.store.names import ShardName

MARK: Final = -1
"""The block number of the row that has the low-water mark of a stream."""


class UnitOwner(NamedTuple):
    """One owner of a unit."""

    consumer: str
    shard: ShardName
    epoch: int
    attempt: int = 0

    @property
    def unit(self) -> str:
        """The name of the unit."""
        return str(self.shard)

    def parameters(self) -> dict[str, object]:
        """Return the parameters of statements."""
        return {
            "consumer": self.consumer,
            "generation": self.shard.generation,
            "unit": self.unit,
            "epoch": self.epoch,
            "attempt": self.attempt,
        }


class EffectRow(NamedTuple):
    """A row of `tailrace_effects`. `done` is None in a row that is to be removed."""

    unit: str
    stream: str
    block: int
    done: bytes | None


class StoredUnit(NamedTuple):
    """What a database has of a unit.

    `attempt` is the one to commit with, or None if the unit has another owner. `epoch` is the
    highest that the database has for the unit and for later generations.
    """

    epoch: int
    attempt: int | None
    rows: Sequence[EffectRow]


class EffectsSession(Protocol):
    """One connection. One thread at a time. Methods raise the errors of the driver, and
    `EffectsUnavailable` if a transaction cannot begin because others take too long."""

    @property
    def connection(self) -> Any:
        """The connection of the driver. Between `begin` and `commit` or `rollback` it refuses to
        end the transaction."""

    def create_tables(self) -> None:
        """Create the tables that do not exist, also if other processes do the same."""

    def take_over(self, owner: UnitOwner) -> StoredUnit:
        """Store an owner and its epoch, unless a newer one is stored, in one transaction. Returns
        the rows of its unit and of all earlier generations."""

    def begin(self) -> None:
        """Begin the transaction of a handler."""

    def commit(self, owner: UnitOwner, rows: Sequence[EffectRow]) -> None:
        """Write rows and commit, if the owner is the stored one. Any error leaves the outcome
        open."""

    def rollback(self) -> None:
        """Roll the transaction back."""

    def read_again(self, owner: UnitOwner) -> StoredUnit:
        """Return the rows of a unit. Commits of this owner's attempt that are under way are waited
        for or have no effect later."""

    def close(self) -> None:
        """Close the connection, at any time. Never raises."""

    def forget(self) -> None:
        """Let go of the connection in a forked child, without a message to the server."""


class EffectsDatabase(Protocol):
    """A database. Any thread may use it."""

    @property
    def name(self) -> str:
        """Its address without user and password."""

    def open(self) -> EffectsSession:
        """Open a connection. Raises the errors of the driver."""

    def is_outage(self, error: BaseException) -> bool:
        """True if an error is one of the database or the connection, not of what was written."""

    def after_fork(self) -> None:
        """Drop inherited locks, in a forked child."""


class TransactionRefused(Error, RuntimeError):
    """A handler called a method that ends its transaction, or ended it by a statement."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"a handler with effects may not {what}",
            "its outcome decides: the transaction is committed together with the message when the"
            " handler returns, and rolled back when it raises an error",
        )
