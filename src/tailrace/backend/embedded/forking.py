"""Forks: what must not be going on during one, and what a child begins anew.

SQLite keeps an account of what this process has locked of each database file. A forked child
inherits the account but none of the locks, so connections that it opened beside the inherited ones
would rely on locks that nobody holds. And a mutex that another thread held at the instant of the
fork stays held in the child for ever. So a fork waits until no thread is inside SQLite (`NO_FORK`),
and the child closes what it inherited, which ends the account, before it opens anything
(`begin_anew_after_fork`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from types import TracebackType
from typing import Final, Protocol

from tailrace.errors import HubClosed
from tailrace.log.schema import settle_arrow

FORK_WAIT_MAX_S: Final = 30.0
"""How long a fork waits for threads inside SQLite. The child of one that waited in vain cannot use
a hub."""

_LOOK_AGAIN_S: Final = 0.0002


class ForkedHolder(Protocol):
    """Something that must not be used on in a forked child as it is."""

    def after_fork(self) -> None:
        """In the child, where only the thread that forked goes on: let go of what is inherited."""


class _NoFork:
    """`with NO_FORK:` is around every use of SQLite; no fork happens inside. May be nested."""

    def __init__(self) -> None:
        self._inside: deque[int] = deque()
        self._forking = False
        self._fork = threading.Lock()
        self.torn = False
        """In a child that was forked from inside, by a signal handler for example."""

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
            settle_arrow()  # another thread may be in the middle of it
        self._fork.acquire()
        self._forking = True
        me = threading.get_ident()
        deadline = time.monotonic() + FORK_WAIT_MAX_S
        while len(self._inside) > self._inside.count(me) and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)

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
        """`HubClosed` in a child whose SQLite is in the middle of something for ever."""
        if self.torn:
            raise HubClosed(
                "this process was forked in the middle of a commit or a look",
                "open hubs in another process, or fork elsewhere",
            )


NO_FORK: Final = _NoFork()

_holders: Final[weakref.WeakSet[ForkedHolder]] = weakref.WeakSet()


def begin_anew_after_fork(holder: ForkedHolder) -> None:
    """Have its `after_fork` called in every child, for as long as it is there."""
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
