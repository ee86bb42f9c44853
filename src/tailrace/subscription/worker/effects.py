"""The contract between a worker and the database that its handler writes to.

The database stores which messages it has the effects of, by their origins, in the transaction that
stores the effects. So a message whose effects are stored is never called again, also if the worker
ended before the message was acknowledged. For each call or batch, the worker:

1. skips the messages that `UnitEffects.stored` knows, and acknowledges them;
2. begins a transaction, and calls the handler with its `connection`;
3. commits the origins if the handler returned, or rolls back;
4. acknowledges the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tailrace.subscription.shard.attempts import Origin


class Effects(Protocol):
    """A database that handlers write to. Any thread may use it."""

    def take_over(self, consumer: str, unit: str, epoch: int) -> UnitEffects:
        """Make a grant the owner of its unit in the database, and return the unit.

        `consumer` is the identity of a subscription, `unit` the name of a shard, ``0.3``, and
        `epoch` that of the grant. Earlier owners of the unit, and all units of earlier generations
        of the consumer, can commit nothing from then on. Blocks until the database has answered.

        Raises `Fenced` if the database knows a higher epoch of the unit or a later generation, and
        `EffectsUnavailable` if it does not answer. Both write nothing.
        """

    def check(self, hub_directory: str) -> None:
        """Raise `InvalidValue` if it is the database of a hub, and `EffectsUnavailable` if it does
        not answer."""

    def close(self) -> None:
        """Close the idle connections. Connections that calls use are closed when those end."""


class UnitEffects(Protocol):
    """A unit of a consumer, as one owner of it has it. Any thread may use it.

    After `Fenced` or `OutcomeUnknown` from a commit, every later commit raises the same: drop the
    unit, and take it over again with the epoch of a new grant.
    """

    def stored(self, origin: Origin) -> bool:
        """True if the database has the effects of a message. Never blocks on the database."""

    def pass_over(self, first: Origin, after: int) -> None:
        """Record that the messages from `first` up to, not including, the offset `after` are never
        called, so that the next commit can store them in few bytes. Never blocks on the database.
        """

    def begin(self) -> EffectsTransaction:
        """Begin a transaction for one call or batch; `EffectsUnavailable` if that fails."""


class EffectsTransaction(Protocol):
    """The transaction of one call or batch. End it once the handler does not use it any more.

    One thread at a time.
    """

    @property
    def connection(self) -> Any:
        """The connection that the handler writes with. It refuses to commit and to close."""

    def commit(self, origins: Sequence[Origin]) -> None:
        """Store these messages together with what the handler wrote, and end the transaction.

        At least one message, and none that is stored already: otherwise `InvalidValue`. Messages
        without effects, such as filtered ones, may be among them. Commits of a unit run one after
        the other. Returning proves that the messages and their effects are stored, once. If the
        answer of the database was lost and the unit has a new owner, they may be the new owner's.

        Raises `Fenced` if the unit has another owner, `EffectsUnavailable` if the database was
        lost, and an error of the database that refused the commit; nothing is stored then. Raises
        `OutcomeUnknown` if the database did not answer, nor say afterwards what it has stored.
        """

    def rollback(self) -> None:
        """End the transaction and store nothing. Does nothing if it has ended."""
