"""The link between a supervisor and one of its processes: a pair of connected sockets.

The process reports lines of JSON: that it is ready, that its error will not go away, and its
activity whenever the supervisor asks. The end of the supervisor, for whatever reason, ends the
link, and the process drains. A process inherits its end of the link as an open descriptor.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from tailrace.operations.app.activity import Activity, SubscriptionActivity

_QUESTION: Final = b"?"
_CHUNK_BYTES: Final = 1 << 16


class ReportKind(Enum):
    """What a process reports."""

    READY = "ready"
    REFUSED = "refused"
    ACTIVE = "active"


class ProcessReport(msgspec.Struct, frozen=True):
    """One report of a process. Only an active one has an activity."""

    kind: ReportKind
    activity: dict[str, SubscriptionActivity] = {}


class SupervisedLink:
    """The end of a process. `lost` is called, in a thread, when the supervisor has ended."""

    def __init__(self, descriptor: int, lost: Callable[[], None]) -> None:
        self._socket = socket.socket(fileno=descriptor)
        # A program that a handler starts has nothing to do with the supervisor.
        os.set_inheritable(descriptor, False)
        self._lost = lost
        self.activity: Callable[[], Activity] = dict
        """Returns the activity of the process. Called in a thread."""
        threading.Thread(target=self._follow, name="tailrace supervisor link", daemon=True).start()

    def say_ready(self) -> None:
        """Report that the workers of all subscriptions were started."""
        self._send(ProcessReport(ReportKind.READY))

    def say_refused(self) -> None:
        """Report that the process ends with an error that it would have again."""
        self._send(ProcessReport(ReportKind.REFUSED))

    def _send(self, report: ProcessReport) -> None:
        with contextlib.suppress(OSError):  # The supervisor has ended, which `_follow` finds out.
            self._socket.sendall(msgspec.json.encode(report) + b"\n")

    def _follow(self) -> None:
        while self._asked():
            self._send(ProcessReport(ReportKind.ACTIVE, dict(self.activity())))
        self._lost()

    def _asked(self) -> bool:
        try:
            return bool(self._socket.recv(_CHUNK_BYTES))
        except OSError:
            return False


class SupervisorLink:
    """The end of a supervisor. It never blocks."""

    def __init__(self) -> None:
        self._socket, self._other = socket.socketpair()
        self._socket.setblocking(False)
        self._unread = b""

    @property
    def inherited(self) -> int:
        """The descriptor that the process inherits."""
        return self._other.fileno()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a report arrives."""
        return self._socket.fileno()

    def process_started(self) -> None:
        """Close the end of the process, which has its own copy of it now."""
        self._other.close()

    def ask(self) -> None:
        """Ask for the activity of the process."""
        with contextlib.suppress(OSError):  # It has ended, or has not yet answered many times.
            self._socket.send(_QUESTION)

    def reports(self) -> list[ProcessReport] | None:
        """Return the reports that have arrived; None once the link has ended."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [msgspec.json.decode(line, type=ProcessReport) for line in lines]

    def close(self) -> None:
        """End the link. The process drains if it still runs."""
        self._socket.close()
        self._other.close()
