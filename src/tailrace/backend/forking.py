"""Forks: sections that a fork must not interrupt, and objects that a forked child must reset.

SQLite keeps a list, per process, of the locks it holds on each database file. A forked child
inherits the list but none of the locks. If the child opened new connections beside the inherited
ones, they would rely on locks that nobody holds. A mutex that another thread held at the instant of
the fork also stays locked in the child for ever. Therefore a fork waits until no thread is inside
SQLite (`NO_FORK`), and the child closes the inherited connections, which clears the list, before it
opens any (`reset_after_fork`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

from tailrace.errors import HubClosed
from tailrace.log.schema import import_pandas_now

FORK_WAIT_MAX_S: Final = 30.0
"""How long a fork waits for threads inside SQLite. If the time runs out, the child cannot use a
hub."""

_POLL_S: Final = 0.0002


class ForkAware(Protocol):
    """An object that must be reset before a forked child uses it."""

    def after_fork(self) -> None:
        """Drop inherited locks and connections. Called in the child, which has one thread."""


class _NoFork:
    """A section in which this process does not fork; may be nested. Every use of SQLite is inside
    `with NO_FORK:`."""

    def __init__(self) -> None:
        self._inside: deque[int] = deque()
        self._forking = False
        self._fork = threading.Lock()
        self.torn = False
        """True in a child that was forked inside the section, for example by a signal handler."""

    def __enter__(self) -> None:
        me = threading.get_ident()
        self._inside.append(me)
        while self._forking and self._inside.count(me) == 1:
            self._inside.remove(me)
            with self._fork:
                self._inside.append(me)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inside.remove(threading.get_ident())

    def before_fork(self) -> None:
        if "pandas" in sys.modules:
            import_pandas_now()  # another thread may be importing pandas in Arrow
        self._fork.acquire()
        self._forking = True
        me = threading.get_ident()
        deadline = time.monotonic() + FORK_WAIT_MAX_S
        while len(self._inside) > self._inside.count(me) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def after_fork_in_parent(self) -> None:
        self._forking = False
        self._fork.release()

    def after_fork_in_child(self) -> None:
        self.torn = self.torn or bool(self._inside)
        me = threading.get_ident()
        self._inside = deque(thread for thread in self._inside if thread == me)
        self._forking = False
        self._fork = threading.Lock()

    def check_whole(self) -> None:
        """Raise `HubClosed` in a child that was forked while a thread was inside SQLite."""
        if self.torn:
            raise HubClosed(
                "this process was forked during a commit or a read of the hub",
                "open the hub in another process, or fork at another time",
            )


NO_FORK: Final = _NoFork()

_holders: Final[weakref.WeakSet[ForkAware]] = weakref.WeakSet()


def reopen(path: Path) -> int:
    """In a forked child: open a file of the hub again, and return its descriptor.

    If the hub was removed, it is the descriptor of an empty file of this process alone: commits and
    reads find out that the hub was removed.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return os.memfd_create(path.name)


def reset_after_fork(holder: ForkAware) -> None:
    """Call the holder's `after_fork` in every forked child, as long as the holder exists."""
    _holders.add(holder)


def _after_fork_in_child() -> None:
    NO_FORK.after_fork_in_child()
    for holder in list(_holders):
        holder.after_fork()


os.register_at_fork(
    before=NO_FORK.before_fork,
    after_in_parent=NO_FORK.after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
