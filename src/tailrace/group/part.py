"""A consumer's part in its group: how it begins and ends, and the wait for the next turn."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any, Final, Self

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import Error
from tailrace.group.asked import Acks, Asked
from tailrace.group.definition import consumer_name
from tailrace.group.ends import unconsumed
from tailrace.group.hand import Hand
from tailrace.group.owned import Owned
from tailrace.group.session import Session
from tailrace.group.taking_part import Runtime
from tailrace.message import Partition

_LOOK_S: Final = 0.1


class Part:
    """Taken by entering it, left by leaving it, once. `turn` is for one thread at a time."""

    def __init__(
        self,
        backend: Backend,
        session: Session,
        hand: Hand[Any],
        asked: Asked,
        *,
        join: Callable[[Session], Runtime],
        ends: Callable[[], Mapping[Partition, int]],
        clock: Clock,
    ) -> None:
        self._backend = backend
        self._session = session
        self._hand = hand
        self._asked = asked
        self._join = join
        self._find_ends = ends
        self._clock = clock
        self._runtime: Runtime | None = None
        self._closed = False
        self._ends: Mapping[Partition, int] | None = None
        self._turning = threading.Lock()
        self._iterations = self._process = 0
        self._iterator: object = None
        self._taken_in_at: float | None = None
        self._had_units = False

    @property
    def begun(self) -> bool:
        """Whether it was entered, by now or before."""
        return self._process != 0

    def begin(self) -> None:
        """Take part, if that was not begun yet. `Error` after the end."""
        if self._closed:
            raise Error("this consumer has left its group", "open another")
        if not self.begun:
            if self._asked.to_end:
                self._ends = self._session.share.stops = dict(self._find_ends())
            self._session.start(self._joined)
            self._process = os.getpid()

    def end(self, error: BaseException | None) -> None:
        """Leave the group, by an error or without. What is in hand is done only without one."""
        if self._closed or self._process != os.getpid():  # never begun, or before a fork
            return
        self._closed = True
        if error is None:
            self._hand.settle()
        manual = self._asked.acks is Acks.MANUAL
        self._session.leave(release=not manual or error is not None)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)

    async def __aenter__(self) -> Self:
        entering = asyncio.ensure_future(asyncio.to_thread(self.begin))
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError as cancelled:
            # The thread goes on, and nobody else would leave the group.
            await asyncio.wait([entering])
            if entering.exception() is None:
                await asyncio.to_thread(self.end, cancelled)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await asyncio.to_thread(self.end, error)

    @contextmanager
    def alone(self, iterator: object) -> Iterator[None]:
        """For one thread or task alone: another would acknowledge what that has in hand."""
        if self._iterations and self._iterator != iterator:
            raise Error("another thread or task iterates this consumer", "open one for each")
        self._iterator = iterator
        self._iterations += 1
        try:
            yield
        finally:
            self._iterations -= 1

    def turn(self, abandoned: threading.Event | None = None) -> Owned | None:
        """Acknowledge what is in hand, and wait for a unit that has more; None at the end."""
        with self._turning:
            self.begin()
            self._hand.settle()
            asked_at = self._clock.monotonic()
            wait_s: float | None = 0.0
            while self._hand.left != 0:
                owned = self._session.next(wait_s, abandoned)
                if owned is not None:
                    self._had_units, self._taken_in_at = True, asked_at
                if owned is not None or self._session.stopping:
                    return owned
                if abandoned is not None and abandoned.is_set():
                    return None
                if self._ends is not None and self._consumed():
                    return None
                if self._clock.monotonic() >= self._idle_at(asked_at):
                    return None
                wait_s = self._wait_s(asked_at)
            return None

    def rouse(self) -> None:
        """Have a `turn` that waits look at whether it was abandoned."""
        self._session.rouse()

    def _joined(self, session: Session) -> Runtime:
        self._runtime = self._join(session)
        return self._runtime

    def _wait_s(self, asked_at: float) -> float | None:
        """How long to wait before the next look at whether this is the end; None for ever."""
        idle_at = self._idle_at(asked_at)
        joining = self._asked.idle_s is not None and idle_at == inf
        look_s = _LOOK_S if joining or self._ends is not None else inf
        wait_s = min(max(0.0, idle_at - self._clock.monotonic()), look_s)
        return None if wait_s == inf else wait_s

    def _idle_at(self, asked_at: float) -> float:
        """When no message will have come for too long, since one was asked for.

        The time in which it could not get any does not count: that before the group has taken it
        in, and before it has its first units, if these come in time.
        """
        if self._asked.idle_s is None:
            return inf
        if not self._had_units:
            assert self._runtime is not None
            now = self._clock.monotonic()
            if self._runtime.until(self._session.id) > now:
                with self._session.share.lock:
                    self._had_units = bool(self._session.holdings)
                if self._had_units or self._taken_in_at is None:
                    self._taken_in_at = now
        if self._taken_in_at is None:
            return inf
        return max(asked_at, self._taken_in_at) + self._asked.idle_s

    def _consumed(self) -> bool:
        """Whether the group has done all that was there at the start, or can do no more here."""
        assert self._ends is not None
        if not self._session.idle:
            return False
        self._session.commit()
        consumer = consumer_name(self._session.group)
        self._ends = unconsumed(self._backend, consumer, self._ends)
        return self._ends.keys() <= self._session.blocked
