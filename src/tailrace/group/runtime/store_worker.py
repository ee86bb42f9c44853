"""The thread that executes the store actions of a process, one after another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import HubClosed, UnknownGroup
from tailrace.group.outage import TRANSIENT, Outage
from tailrace.group.protocol.actions import (
    Elect,
    FindLeader,
    ReadGrants,
    ReadUnits,
    WriteHistory,
)
from tailrace.group.protocol.events import Elected, Event
from tailrace.group.runtime.store_actions import GroupAction, StoreActions
from tailrace.group.store.history import HistoryLine, append_history, line_of
from tailrace.group.store.unit_source import UnitSources

LINES_MAX: Final = 10_000
"""The number of history lines kept while they cannot be written; the oldest are lost first."""
_RETRY_S: Final = 0.5

StoreAction: TypeAlias = GroupAction | WriteHistory

_log: Final = logging.getLogger("tailrace.group")


class StoreWorker:
    """Executes actions in the order in which they were submitted, and writes history last.

    An action that is already queued is not queued again. An action that fails in the backend is
    dropped, because the protocol repeats it; history lines are kept and retried. `owner` names the
    process in history lines. `post` receives the answers; `check` receives groups that do not
    exist.
    """

    def __init__(
        self,
        backend: Backend,
        process: str,
        owner: str,
        clock: Clock,
        sources: UnitSources,
        *,
        post: Callable[[Event], None],
        check: Callable[[str], None],
    ) -> None:
        self._backend = backend
        self._owner = owner
        self._clock = clock
        self._post = post
        self._check = check
        self._changed = threading.Condition()
        self._actions: dict[GroupAction, None] = {}
        self._lines: list[HistoryLine] = []
        self._finishing = False
        self._stopped = False
        self._store = StoreActions(backend, process, sources)
        self._outage = Outage(_log, "access to the store of the hub")

    def submit(self, action: StoreAction) -> None:
        """Queue an action. Any thread; never blocks."""
        with self._changed:
            if isinstance(action, WriteHistory):
                self._lines.append(line_of(action, self._owner, self._clock.now_ms()))
                del self._lines[:-LINES_MAX]
            else:
                self._actions.setdefault(action)
            self._changed.notify()

    def finish(self) -> None:
        """Make `run` return once every queued write was executed. Drops queued reads and
        elections."""
        with self._changed:
            for action in list(self._actions):
                if isinstance(action, FindLeader | Elect | ReadUnits | ReadGrants):
                    del self._actions[action]
            self._finishing = True
            self._changed.notify()

    def stop(self) -> None:
        """Make `run` return after the action that it executes now."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def run(self) -> None:
        """Execute actions until `finish` or `stop` is called."""
        retry_s: float | None = None
        while (action := self._next(retry_s)) is not None:
            retry_s = None
            try:
                self._execute(action)
            except HubClosed:
                raise
            except TRANSIENT as error:
                self._outage.failed(error)
                retry_s = _RETRY_S
                if isinstance(action, list):
                    self._put_back(action)
            else:
                self._outage.worked()

    def _execute(self, action: GroupAction | list[HistoryLine]) -> None:
        try:
            if isinstance(action, list):
                append_history(self._backend, action)
            elif (answer := self._store.execute(action)) is not None:
                if isinstance(answer, Elected):
                    text = "group %s: elected %s as the leader, term %d"
                    _log.debug(text, answer.group, self._owner, answer.term)
                self._post(answer)
        except UnknownGroup as error:
            self._check(error.group)

    def _next(self, retry_s: float | None) -> GroupAction | list[HistoryLine] | None:
        """Wait for the next action, or for history lines if no action is queued.

        Returns None when `run` must return. With `retry_s`, history lines wait that long.
        """
        with self._changed:
            while not (self._stopped or self._actions):
                if self._lines and retry_s is None:
                    lines, self._lines = self._lines, []
                    return lines
                if self._finishing:
                    return None
                self._changed.wait(retry_s)
                if not self._actions:
                    retry_s = None
            if self._stopped:
                return None
            action = next(iter(self._actions))
            del self._actions[action]
            return action

    def _put_back(self, lines: list[HistoryLine]) -> None:
        with self._changed:
            self._lines[:0] = lines[-LINES_MAX:]
