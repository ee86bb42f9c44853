"""The thread that carries out what a machine wants of the store, one thing after another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import HubClosed, UnknownGroup
from tailrace.group.actions import (
    Elect,
    Look,
    ReadGrants,
    ReadUnits,
    Record,
)
from tailrace.group.carrying_out import StoreActions, Wanted
from tailrace.group.events import Event
from tailrace.group.history import HistoryLine, append_history, line_of
from tailrace.group.trouble import PASSING, Trouble

LINES_MAX: Final = 10_000
"""How much history is kept while it cannot be written; older lines are lost first."""
_RETRY_S: Final = 0.5

StoreAction: TypeAlias = Wanted | Record

_log = logging.getLogger(__name__)


class Worker:
    """Carries out actions in the order in which they came, history last.

    An action that already waits is not queued again. One that the backend fails is given up, for it
    will be asked for again; only history is kept, with `owner`: how people name the process. `tell`
    is given the answers; `check` is given groups that do not exist.
    """

    def __init__(
        self,
        backend: Backend,
        process: str,
        owner: str,
        clock: Clock,
        *,
        tell: Callable[[Event], None],
        check: Callable[[str], None],
    ) -> None:
        self._backend = backend
        self._owner = owner
        self._clock = clock
        self._tell = tell
        self._check = check
        self._changed = threading.Condition()
        self._actions: dict[Wanted, None] = {}
        self._lines: list[HistoryLine] = []
        self._finishing = False
        self._stopped = False
        self._store = StoreActions(backend, process)
        self._trouble = Trouble(_log, "the store of the hub")

    def submit(self, action: StoreAction) -> None:
        """Have an action carried out. Any thread, never waits."""
        with self._changed:
            if isinstance(action, Record):
                self._lines.append(line_of(action, self._owner, self._clock.now_ms()))
                del self._lines[:-LINES_MAX]
            else:
                self._actions.setdefault(action)
            self._changed.notify()

    def finish(self) -> None:
        """Let `run` end once all is done that waits, but for what was only asked."""
        with self._changed:
            for action in list(self._actions):
                if isinstance(action, Look | Elect | ReadUnits | ReadGrants):
                    del self._actions[action]
            self._finishing = True
            self._changed.notify()

    def stop(self) -> None:
        """Let `run` end after what it is at."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def run(self) -> None:
        """What the thread does."""
        retry_s: float | None = None
        while (action := self._next(retry_s)) is not None:
            retry_s = None
            try:
                self._do(action)
            except HubClosed:
                raise
            except PASSING as error:
                self._trouble.failed(error)
                retry_s = _RETRY_S
                if isinstance(action, list):
                    self._put_back(action)
            else:
                self._trouble.worked()

    def _do(self, action: Wanted | list[HistoryLine]) -> None:
        try:
            if isinstance(action, list):
                append_history(self._backend, action)
            elif (answer := self._store.carry_out(action)) is not None:
                self._tell(answer)
        except UnknownGroup as error:
            self._check(error.group)

    def _next(self, retry_s: float | None) -> Wanted | list[HistoryLine] | None:
        """The next action; when there is none, the history so far; None when `run` is to end.

        With `retry_s`, history is left alone so long.
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
