"""The thread that commits acknowledgements, for all sessions of a process."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tailrace.clock import Clock
from tailrace.group.runtime.contract import LocalSession


class ProgressSaver:
    """Calls `save` of the sessions that have acknowledgements to commit, once per interval."""

    def __init__(
        self, members: Mapping[str, LocalSession], interval_s: float, clock: Clock
    ) -> None:
        self._members = members
        self._interval_s = interval_s
        self._clock = clock
        self._changed = threading.Condition()
        self._due: set[str] = set()
        self._due_at = 0.0
        self._soon: set[str] = set()
        self._stopped = False

    def due(self, session: str) -> None:
        """Save the session within the interval."""
        if session in self._due:
            return
        with self._changed:
            if not self._due:
                self._due_at = self._clock.monotonic() + self._interval_s
                self._changed.notify()
            self._due.add(session)

    def soon(self, session: str) -> None:
        """Save the session at once."""
        with self._changed:
            self._soon.add(session)
            self._changed.notify()

    def stop(self) -> None:
        """Make `run` return."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def run(self) -> None:
        """Save sessions until `stop` is called."""
        while not self._stopped:
            for session in self._next():
                member = self._members.get(session)
                if member is not None:
                    member.save()

    def _next(self) -> set[str]:
        """Wait for sessions that are due, and return them."""
        with self._changed:
            while not (self._stopped or self._soon):
                left_s = self._due_at - self._clock.monotonic() if self._due else None
                if left_s is not None and left_s <= 0:
                    break
                self._changed.wait(left_s)
            if self._soon:
                popped, self._soon = self._soon, set()
                self._due -= popped
            else:
                popped, self._due = self._due, set()
            return popped
