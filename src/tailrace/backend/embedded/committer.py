"""Group commit: the work of many threads becomes one write, one sync and one commit.

A thread that submits work leads if no other thread does: it takes all waiting work, in order, and
executes it; the threads of that work wait. So a single thread has no hand-over cost, and sixty-four
share a sync. Whole pieces of work are joined, each in a savepoint of its own: a refused one drops
out alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import apsw

from tailrace.errors import BackendUnavailable, OutcomeUnknown
from tailrace.log.record import Encoded
from tailrace.message import Partition, Range

GROUP_MAX = 256
GROUP_BYTES_MAX = 64 * 2**20
"""A group ends with the piece of work that reaches either limit."""


class Work:
    """One transaction or change on its way into `hub.db`.

    `check` only reads, and raises the error that forbids the work; `write` writes its rows and
    returns its result. Both run inside the commit. `check` also runs before any byte is written, so
    that work which would be refused costs no write.
    """

    __slots__ = (
        "appends",
        "check",
        "deadline",
        "error",
        "finished",
        "leads",
        "ranges",
        "result",
        "since",
        "turn",
        "write",
    )

    def __init__(
        self,
        check: Callable[[apsw.Connection], None],
        write: Callable[[apsw.Connection], Any],
        appends: tuple[tuple[Partition, Encoded], ...] = (),
        since: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.check = check
        self.write = write
        self.appends = appends
        self.since = since
        self.ranges: list[Range] = []
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False
        self.leads = False
        self.deadline = 0.0
        self.turn: threading.Lock | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes that the work adds to its group."""
        return sum([len(encoded.data) for _, encoded in self.appends])

    def finish(self, error: BaseException | None = None) -> None:
        """Set the outcome and wake the thread that waits for it."""
        if not self.finished:
            self.error = error
            self.finished = True
            if self.turn is not None:
                self.turn.release()


class Committer:
    """The queue of work of one process. `execute` executes a group, sets the outcome of each piece,
    and returns the pieces to execute again."""

    def __init__(
        self, execute: Callable[[list[Work], float], Iterable[Work]], timeout_s: float
    ) -> None:
        self._execute = execute
        self._timeout_s = timeout_s
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child, which has none of the waiting threads: start with an empty queue."""
        self.leading = threading.RLock()
        """Held while a group is executed: while a thread holds it, no work is in progress."""
        self._mutex = threading.Lock()
        self._queue: deque[Work] = deque()
        self._led = False

    def submit(self, work: Work) -> Any:
        """Execute the work, alone or with that of other threads, and return its result or raise its
        error."""
        work.deadline = time.monotonic() + self._timeout_s
        with self._mutex:
            self._queue.append(work)
            leads = not self._led
            if leads:
                self._led = True
            else:
                work.turn = threading.Lock()
                work.turn.acquire()
        if leads or self._await_turn(work):
            self._lead(work)
        error, work.error = work.error, None
        if error is None:
            return work.result
        try:
            raise error
        finally:
            # Otherwise the error, its frames and the segments they have open would stay alive.
            del error

    def _await_turn(self, work: Work) -> bool:
        """Wait until the work is finished (False) or its thread must lead (True)."""
        assert work.turn is not None
        try:
            if not work.turn.acquire(timeout=self._timeout_s):
                if self._withdraw(work):
                    raise BackendUnavailable(
                        f"no commit within {self._timeout_s:g} s",
                        "another thread of this process waits for a lock; nothing was written",
                    )
                work.turn.acquire()
        except BaseException:
            if not self._withdraw(work) and work.leads:
                with self._mutex:
                    self._queue.remove(work)
                self._hand_over()
            raise
        return work.leads

    def _withdraw(self, work: Work) -> bool:
        """Remove work that still waits; False if it is being executed or its thread must lead."""
        with self._mutex:
            waits = work in self._queue and not work.leads
            if waits:
                self._queue.remove(work)
            return waits

    def _lead(self, own: Work) -> None:
        try:
            while not own.finished:
                group = self._pop_group()
                try:
                    with self.leading:
                        again = list(self._execute(group, own.deadline))
                except BaseException as error:
                    for work in group:
                        work.finish(_for_others(work, own, error))
                    if not isinstance(error, Exception):
                        raise
                    continue
                if again:
                    with self._mutex:
                        self._queue.extendleft(reversed(again))
        finally:
            self._hand_over()

    def _pop_group(self) -> list[Work]:
        group: list[Work] = []
        size = 0
        with self._mutex:
            while self._queue and len(group) < GROUP_MAX and size < GROUP_BYTES_MAX:
                work = self._queue.popleft()
                size += work.size_bytes
                group.append(work)
        return group

    def _hand_over(self) -> None:
        with self._mutex:
            if not self._queue:
                self._led = False
                return
            next_leader = self._queue[0]
            assert next_leader.turn is not None
            next_leader.leads = True
            next_leader.turn.release()


def _for_others(work: Work, own: Work, error: BaseException) -> BaseException:
    if work is own or isinstance(error, Exception):
        return error
    return OutcomeUnknown(
        "the thread that committed for this one was interrupted",
        "check the outcome before you retry",
    )
