"""How messages get from process to process: one contract, filled in more than one way.

The protocol of groups says again whatever is not answered and knows what comes twice, late or out
of order. So a transport promises nothing but to try, and not to hold anybody up.
"""

from __future__ import annotations

import threading
from typing import Protocol

from tailrace.group.messages import Message


class Receiver(Protocol):
    """Who is told what came. Called by the thread that calls `send` and `poll`; must not block."""

    def received(self, sender: str, message: Message) -> None:
        """A message came from a process."""

    def parted(self, process: str) -> None:
        """A connection with a process ended, or could not be made: reason to look whether it
        lives. It says no more than that, and may come more than once."""


class Transport(Protocol):
    """Carries messages of one process. For one thread, except `wake`."""

    def send(self, process: str, message: Message) -> None:
        """Try to get a message to a process, which may be this one.

        Never waits. A message may get lost, and that is not reported, whether the process is there
        or not.
        """

    def poll(self, timeout_s: float | None) -> None:
        """Hand over all that is there now; if nothing is, wait for something, or `wake`, so long.

        None waits without end.
        """

    def wake(self) -> None:
        """End the `poll` that a thread is in, or the next one. Any thread, also once closed."""

    def flush(self, timeout_s: float) -> None:
        """Give what was sent so long to leave this process."""

    def close(self) -> None:
        """Give back what it holds. Closing again does nothing."""


class WithinProcess:
    """The transport of a process that can reach no other: what it sends to itself comes at once,
    and the rest is lost."""

    def __init__(self, process: str, receiver: Receiver) -> None:
        self._process = process
        self._receiver = receiver
        self._woken = threading.Event()

    def send(self, process: str, message: Message) -> None:
        """Hand it over, if it is for this process."""
        if process == self._process:
            self._receiver.received(process, message)

    def poll(self, timeout_s: float | None) -> None:
        """Wait for `wake`."""
        self._woken.wait(timeout_s)
        self._woken.clear()

    def wake(self) -> None:
        """End a `poll`."""
        self._woken.set()

    def flush(self, timeout_s: float) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Holds nothing, gives back nothing."""
