"""The one lock of a backend in memory, and the followers that wait at it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
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

    def wait_until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something inside is true, or the time is over: which of the two."""
        with self._changed:
            found = self._changed.wait_for(lambda: self._closed or true(), timeout_s)
            self._check_open()
            return found

    @contextmanager
    def stirred(self) -> Iterator[None]:
        """Be the only one inside, and have those who wait look again."""
        with self._changed:
            yield
            self._changed.notify_all()

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
        self._woken = False

    def arm(self) -> None:
        """Any commit after this call ends the next `wait`."""
        with self._gate.entered():
            self._seen = self._gate.commits

    def wait(self, timeout_s: float) -> bool:
        """True when something was committed since `arm`, False when the time is over."""
        ended = self._gate.wait_until(
            lambda: self._woken or self._gate.commits > self._seen, timeout_s
        )
        self._woken = False
        return ended

    def wake(self) -> None:
        """End a wait of any thread."""
        with self._gate.stirred():
            self._woken = True

    def close(self) -> None:
        """Holds nothing, gives back nothing."""
