"""A unit of a consumer in a database of effects, and the transactions of its calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from tailrace.error_text import describe_error
from tailrace.errors import Error, Fenced, OutcomeUnknown
from tailrace.queue.effects.connections import Connections
from tailrace.queue.effects.database import EffectsSession, StoredUnit, UnitOwner
from tailrace.queue.effects.progress_rows import UnitProgress
from tailrace.subscription.shard.attempts import Origin

_POLL_S: Final = 0.1


class SqlUnitEffects:
    """A `UnitEffects`.

    After a failed commit, the rows of the unit are read on a new connection for up to
    `outcome_timeout_s`. Other commits of the unit wait meanwhile.
    """

    def __init__(
        self,
        connections: Connections,
        owner: UnitOwner,
        stored: StoredUnit,
        outcome_timeout_s: float,
    ) -> None:
        self._connections = connections
        self._owner = owner
        self._progress = UnitProgress(owner.unit, stored.rows)
        self._outcome_timeout_s = outcome_timeout_s
        self._commits = threading.Lock()
        self._ended: Error | None = None

    def stored(self, origin: Origin) -> bool:
        """True if the database has the effects of a message."""
        return self._progress.stored(origin)

    def pass_over(self, first: Origin, after: int) -> None:
        """Have offsets that are never called stored with the next commit."""
        self._progress.pass_over(first, after)

    def begin(self) -> SqlTransaction:
        """Begin a transaction."""
        return SqlTransaction(self, self._connections, self._connections.begin())

    def commit(self, session: EffectsSession, origins: Sequence[Origin]) -> None:
        """Commit messages and the transaction of a session, which is given back, or closed after an
        error."""
        try:
            with self._commits:
                self._commit(session, origins)
        except BaseException:
            session.close()
            raise

    def _commit(self, session: EffectsSession, origins: Sequence[Origin]) -> None:
        if self._ended is not None:
            raise self._ended
        rows = self._progress.stage(origins)
        try:
            session.commit(self._owner, rows)
        except Exception as error:
            session.close()
            self._resolve(error, origins)
        except BaseException as error:  # For example KeyboardInterrupt, while it waits.
            self._ended = self._unknown(error)
            raise
        else:
            self._progress.saved(origins)
            self._connections.give_back(session)

    def _resolve(self, error: Exception, origins: Sequence[Origin]) -> None:
        """Return if the database has the messages of a failed commit; otherwise raise."""
        try:
            found = self._read_again()
        except BaseException as unread:
            self._ended = self._unknown(error)
            if isinstance(unread, Exception):
                raise self._ended from error
            raise
        self._progress.reload(found.rows)
        if found.attempt is None:
            self._ended = fenced(self._owner, found.epoch)
        else:
            self._owner = self._owner._replace(attempt=found.attempt)
        is_outage = self._connections.database.is_outage(error)
        # Messages of a refused commit that are stored all the same were stored by a new owner.
        mine = self._ended is None or is_outage
        if mine and self._progress.stored_by_unit(origins):
            return
        if self._ended is not None:
            raise self._ended from error
        raise self._connections.unavailable(error) if is_outage else error

    def _read_again(self) -> StoredUnit:
        deadline = time.monotonic() + self._outcome_timeout_s
        while True:
            try:
                with self._connections.opened() as session:
                    return session.read_again(self._owner)
            except Exception:
                if time.monotonic() + _POLL_S > deadline:
                    raise
            time.sleep(_POLL_S)

    def _unknown(self, error: BaseException) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"a commit of unit {self._owner.unit} of {self._owner.consumer} to the database of"
            f" effects {self._connections.database.name} may have happened:"
            f" {describe_error(error)}",
            "its next owner reads what the database has",
        )


class SqlTransaction:
    """An `EffectsTransaction`."""

    def __init__(
        self, unit: SqlUnitEffects, connections: Connections, session: EffectsSession
    ) -> None:
        self._unit = unit
        self._connections = connections
        self._session: EffectsSession | None = session

    @property
    def connection(self) -> Any:
        """The connection that the handler writes with."""
        return self._open_session().connection

    def commit(self, origins: Sequence[Origin]) -> None:
        """Commit messages and what the handler wrote."""
        session = self._open_session()
        self._session = None
        self._unit.commit(session, origins)

    def rollback(self) -> None:
        """Roll back what the handler wrote."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            session.rollback()
        except Exception:  # The connection is lost, and the transaction with it.
            session.close()
        except BaseException:
            session.close()
            raise
        else:
            self._connections.give_back(session)

    def _open_session(self) -> EffectsSession:
        if self._session is None:
            raise Error("the transaction has ended", "begin another one")
        return self._session


def fenced(owner: UnitOwner, epoch: int) -> Fenced:
    """Return the error of an owner, given the epoch that the database has."""
    unit = f"unit {owner.unit} of {owner.consumer}"
    return Fenced(unit, owner.epoch, epoch if epoch > owner.epoch else None)
