"""Group commit: the work of many threads becomes one write, one sync and one commit.

A thread that brings work leads if nobody does: it takes all that waits, in order, and carries
it through; the threads whose work it took wait for it. So one thread alone pays no hand-over,
and sixty-four share a sync. Whole pieces of work are joined, each in a savepoint of its own:
one that is refused drops out alone.
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
"""A group ends with the piece of work that reaches either bound."""


class Work:
    """One transaction or change on its way into `hub.db`.

    `check` only reads, and raises what forbids the work; `write` makes its rows and returns its
    result. Both run inside the commit; `check` also runs before any byte is written, to spare
    what is bound to be refused.
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
        """What it adds to its group."""
        return sum([len(encoded.data) for _, encoded in self.appends])

    def finish(self, error: BaseException | None = None) -> None:
        """Settle the outcome and wake whoever waits for it."""
        if not self.finished:
            self.error = error
            self.finished = True
            if self.turn is not None:
                self.turn.release()


class Committer:
    """The queue of work of one process. `carry` does a group, settles each piece, and gives back
    what is to be redone."""

    def __init__(
        self, carry: Callable[[list[Work], float], Iterable[Work]], timeout_s: float
    ) -> None:
        self._carry = carry
        self._timeout_s = timeout_s
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child, where the threads that waited are not: begin anew."""
        self.leading = threading.RLock()
        """Held while work is carried: with it in hand, none is under way."""
        self._mutex = threading.Lock()
        self._queue: deque[Work] = deque()
        self._led = False

    def submit(self, work: Work) -> Any:
        """Carry the work through, alone or with that of other threads, and return its result or
        raise its error."""
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
            del error  # else it and its frames, with the segments they have open, live on

    def _await_turn(self, work: Work) -> bool:
        """Wait until the work is finished (False) or its thread is to lead (True)."""
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
        """Take work back that only waits; False when it is under way or its thread is to lead."""
        with self._mutex:
            waits = work in self._queue and not work.leads
            if waits:
                self._queue.remove(work)
            return waits

    def _lead(self, own: Work) -> None:
        try:
            while not own.finished:
                group = self._take_group()
                try:
                    with self.leading:
                        again = list(self._carry(group, own.deadline))
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

    def _take_group(self) -> list[Work]:
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
            heir = self._queue[0]
            assert heir.turn is not None
            heir.leads = True
            heir.turn.release()


def _for_others(work: Work, own: Work, error: BaseException) -> BaseException:
    if work is own or isinstance(error, Exception):
        return error
    return OutcomeUnknown(
        "the thread that committed for this one was interrupted", "look before you repeat it"
    )
