"""The one lock of a backend in memory, and the followers that wait at it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.errors import HubClosed


class Gate:
    """The one lock: what everything passes through, and what followers wait at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.commits = 0
        self._changed = threading.Condition()
        self._closed = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be the only one inside; `HubClosed` once it is closed."""
        with self._changed:
            self._check_open()
            yield

    def committed(self) -> None:
        """Wake the followers; called inside."""
        self.commits += 1
        self._changed.notify_all()

    def wait_beyond(self, commits: int, timeout_s: float) -> bool:
        """Wait until there were more commits than that, or the time is over: which of the two."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self.commits > commits, timeout_s)
            self._check_open()
            return self.commits > commits

    def close(self) -> None:
        """Let nobody in any more, and wake those who wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise HubClosed(f"{self.name} is closed", "open it again")


class MemoryFollower:
    """Waits for commits of this process."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._seen = gate.commits

    def arm(self) -> None:
        """Any commit after this call ends the next `wait`."""
        with self._gate.entered():
            self._seen = self._gate.commits

    def wait(self, timeout_s: float) -> bool:
        """True when something was committed since `arm`, False when the time is over."""
        return self._gate.wait_beyond(self._seen, timeout_s)

    def close(self) -> None:
        """Holds nothing, gives back nothing."""
