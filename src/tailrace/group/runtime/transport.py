"""The contract of a transport of messages between processes, and one within a process.

The group protocol repeats every message that is not answered, and recognises messages that arrive
twice, late or out of order. So a transport only has to try, and must not block the sender.
"""

from __future__ import annotations

import threading
from typing import Protocol

from tailrace.group.protocol.messages import Message


class Receiver(Protocol):
    """The receiver of messages. Called by the thread that calls `send` and `poll`; must not
    block."""

    def received(self, sender: str, message: Message) -> None:
        """Handle a message of a process."""

    def disconnected(self, process: str) -> None:
        """Handle the end of a connection, or a connection that failed.

        The process may be dead or alive: probe it. May be called more than once.
        """


class Transport(Protocol):
    """The transport of one process. For one thread, except `wake`."""

    def send(self, process: str, message: Message) -> None:
        """Try to send a message to a process, which may be this one.

        Never blocks, and raises nothing if the message gets lost.
        """

    def poll(self, timeout_s: float | None) -> None:
        """Deliver every message that has arrived. If none has, wait for one, for `wake`, or for
        `timeout_s`; None waits without limit."""

    def wake(self) -> None:
        """Make the current or the next `poll` return. Any thread, also after `close`."""

    def flush(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` until every message was sent."""

    def close(self) -> None:
        """Release all resources. May be called twice."""


class WithinProcess:
    """A transport of a process that can reach no other process: it delivers messages to itself at
    once and drops all others."""

    def __init__(self, process: str, receiver: Receiver) -> None:
        self._process = process
        self._receiver = receiver
        self._woken = threading.Event()

    def send(self, process: str, message: Message) -> None:
        """Deliver a message to this process, or drop it."""
        if process == self._process:
            self._receiver.received(process, message)

    def poll(self, timeout_s: float | None) -> None:
        """Wait for `wake`."""
        self._woken.wait(timeout_s)
        self._woken.clear()

    def wake(self) -> None:
        """Make `poll` return."""
        self._woken.set()

    def flush(self, timeout_s: float) -> None:
        """Do nothing: no message waits."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
