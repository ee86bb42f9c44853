"""The one lock of a backend in memory, and the followers that wait for its commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.errors import HubClosed


class Gate:
    """The one lock of the backend, which followers wait on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.commits = 0
        self._changed = threading.Condition()
        self._closed = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Hold the lock; `HubClosed` once the backend is closed."""
        with self._changed:
            self._check_open()
            yield

    def committed(self) -> None:
        """Wake the followers. The caller holds the lock."""
        self.commits += 1
        self._changed.notify_all()

    def wait_until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition is true; return False after `timeout_s`. The lock is held for each
        check."""
        with self._changed:
            found = self._changed.wait_for(lambda: self._closed or true(), timeout_s)
            self._check_open()
            return found

    @contextmanager
    def changed(self) -> Iterator[None]:
        """Hold the lock, and let waiting threads check their conditions again."""
        with self._changed:
            yield
            self._changed.notify_all()

    def close(self) -> None:
        """Close the backend, and wake all waiting threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise HubClosed(f"{self.name} is closed", "open it again")


class MemoryFollower:
    """A waiter for commits of this process."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._seen = gate.commits
        self._woken = False

    def arm(self) -> None:
        """Any commit after this call ends the next `wait`."""
        with self._gate.entered():
            self._seen = self._gate.commits

    def wait(self, timeout_s: float) -> bool:
        """Return True if there was a commit since `arm`, False after `timeout_s`."""
        ended = self._gate.wait_until(
            lambda: self._woken or self._gate.commits > self._seen, timeout_s
        )
        self._woken = False
        return ended

    def wake(self) -> None:
        """End a wait of any thread."""
        with self._gate.changed():
            self._woken = True

    def close(self) -> None:
        """Do nothing: a follower has no resources."""
