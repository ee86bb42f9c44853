"""The connections to one database of effects: one for each call, kept for the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.backend.forking import reset_after_fork
from tailrace.error_text import describe_error
from tailrace.errors import EffectsUnavailable, Error
from tailrace.queue.effects.database import EffectsDatabase, EffectsSession

IDLE_CONNECTIONS_MAX: Final = 32
"""The number of connections that are kept open while no call uses them."""


class Connections:
    """The connections to one database. Any thread may use it. A forked child starts without any."""

    def __init__(self, database: EffectsDatabase) -> None:
        self.database = database
        self._lock = threading.Lock()
        self._idle: list[EffectsSession] = []
        self._closed = False
        reset_after_fork(self)

    def open(self) -> EffectsSession:
        """Open a new connection; `EffectsUnavailable` if that fails."""
        if self._closed:
            raise Error(f"the effects in {self.database.name} are closed", "make new ones")
        with self._translated():
            return self.database.open()

    @contextmanager
    def opened(self) -> Iterator[EffectsSession]:
        """Use a new connection, and keep it. After an error it is closed; `EffectsUnavailable` for
        any error of the database."""
        session = self.open()
        try:
            with self._translated():
                yield session
        except BaseException:
            session.close()
            raise
        self.give_back(session)

    def begin(self) -> EffectsSession:
        """Begin a transaction on an idle connection, or on a new one if all idle ones are lost."""
        while (idle := self._take_idle()) is not None:
            if _begins(idle):
                return idle
        session = self.open()
        try:
            with self._translated():
                session.begin()
        except BaseException:
            session.close()
            raise
        return session

    def give_back(self, session: EffectsSession) -> None:
        """Keep a connection without a transaction, or close it if there are enough."""
        with self._lock:
            if not self._closed and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(session)
                return
        session.close()

    def close(self) -> None:
        """Close the idle connections, and the others when they are given back."""
        self._closed = True
        while (session := self._take_idle()) is not None:
            session.close()

    def after_fork(self) -> None:
        """Let go of inherited connections and locks."""
        inherited, self._idle = self._idle, []
        self._lock = threading.Lock()
        self.database.after_fork()
        for session in inherited:
            session.forget()

    def unavailable(self, error: BaseException) -> EffectsUnavailable:
        """Return the error of a database that did not answer."""
        return EffectsUnavailable(self.database.name, " ".join(describe_error(error).split()))

    def _take_idle(self) -> EffectsSession | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Error:
            raise
        except Exception as error:
            raise self.unavailable(error) from error


def _begins(session: EffectsSession) -> bool:
    """Begin a transaction; False, and the connection is closed, if it was lost while idle."""
    try:
        session.begin()
    except BaseException as error:
        session.close()
        if isinstance(error, Exception) and not isinstance(error, Error):
            return False
        raise
    return True
