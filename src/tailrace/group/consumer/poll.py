"""Joining and leaving a group, the wait for the next unit, and the iteration over its messages."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, nullcontext
from math import inf
from typing import Any, Final, Generic, Self, TypeVar

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import Error
from tailrace.group.consumer.dispatch import Dispatch
from tailrace.group.consumer.options import AckMode, ConsumerOptions
from tailrace.group.runtime.contract import SessionRuntime
from tailrace.group.session.session import Session
from tailrace.group.session.session_unit import SessionUnit
from tailrace.group.store.end_offsets import unreached
from tailrace.message import Partition

R = TypeVar("R")

_CHECK_S: Final = 0.1


class Poller:
    """A consumer's membership in its group, and the wait for its next unit.

    To enter it joins the group, to exit it leaves, once. `poll` is for one thread at a time.
    """

    def __init__(
        self,
        backend: Backend,
        session: Session,
        dispatch: Dispatch[Any],
        options: ConsumerOptions,
        *,
        join: Callable[[Session], SessionRuntime],
        ends: Callable[[], Mapping[Partition, int]],
        clock: Clock,
    ) -> None:
        self._backend = backend
        self._session = session
        self._dispatch = dispatch
        self._options = options
        self._join = join
        self._read_ends = ends
        self._clock = clock
        self._runtime: SessionRuntime | None = None
        self._closed = False
        self._ends: Mapping[Partition, int] | None = None
        self._polling = threading.Lock()
        self._iterations = self._process = 0
        self._iterator: object = None
        self._joined_at: float | None = None
        self._had_units = False
        self._unraised: Error | None = None
        """An error of `poll` that no iteration has raised yet."""

    @property
    def begun(self) -> bool:
        """True if the consumer has joined, now or earlier."""
        return self._process != 0

    def begin(self) -> None:
        """Join the group, if that was not done yet. `Error` after the consumer has left."""
        if self._closed:
            raise Error("this consumer has left its group", "open another")
        if not self.begun:
            if self._options.to_end:
                self._ends = self._session.machine.stops = dict(self._read_ends())
            self._session.start(self._join_group)
            self._process = os.getpid()

    def end(self, error: BaseException | None) -> None:
        """Leave the group. Without an error, the current delivery is acknowledged first."""
        if self._closed or self._process != os.getpid():  # it never joined, or did before a fork
            return
        self._closed = True
        if error is None:
            self._dispatch.resolve()
        manual = self._options.ack_mode is AckMode.MANUAL
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
            # The thread continues, and nothing else would leave the group.
            await asyncio.wait([entering])
            if entering.exception() is None:
                await asyncio.to_thread(self.end, cancelled)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await asyncio.to_thread(self.end, error)

    @contextmanager
    def alone(self, iterator: object) -> Iterator[None]:
        """Refuse a second thread or task: it would acknowledge the first one's message."""
        if self._iterations and self._iterator != iterator:
            raise Error("another thread or task iterates this consumer", "open one for each")
        self._iterator = iterator
        self._iterations += 1
        try:
            yield
        finally:
            self._iterations -= 1

    def poll(self, abandoned: threading.Event | None = None) -> SessionUnit | None:
        """Resolve the current delivery, and wait for a unit that can deliver. None at the end, or
        once `abandoned` is set.

        The next call raises an error again unless the error left `raising`: a task that is
        cancelled does not receive the error of the call that it awaits.
        """
        with self._polling:
            self.begin()
            self._dispatch.resolve()
            if self._unraised is None:
                try:
                    return self._next_unit(abandoned)
                except Error as error:
                    self._unraised = error
            raise self._unraised

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Record an error of `poll` that the iteration receives, and so raises."""
        try:
            yield
        except Error:
            self._unraised = None
            raise

    def interrupt(self) -> None:
        """Have a `poll` that waits check if it was abandoned."""
        self._session.interrupt()

    def _next_unit(self, abandoned: threading.Event | None) -> SessionUnit | None:
        asked_at = self._clock.monotonic()
        wait_s: float | None = 0.0
        while self._dispatch.left != 0:
            owned = self._session.next(wait_s, abandoned)
            if owned is not None:
                self._had_units, self._joined_at = True, asked_at
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

    def _join_group(self, session: Session) -> SessionRuntime:
        self._runtime = self._join(session)
        return self._runtime

    def _wait_s(self, asked_at: float) -> float | None:
        """Return how long to wait before the next check for the end; None for no limit."""
        idle_at = self._idle_at(asked_at)
        joining = self._options.idle_s is not None and idle_at == inf
        check_s = _CHECK_S if joining or self._ends is not None else inf
        wait_s = min(max(0.0, idle_at - self._clock.monotonic()), check_s)
        return None if wait_s == inf else wait_s

    def _idle_at(self, asked_at: float) -> float:
        """Return when the idle timeout ends: no message has come since one was asked for.

        The time in which no message could come does not count: before the group has admitted the
        consumer, and before the consumer has its first units, if these come in time.
        """
        if self._options.idle_s is None:
            return inf
        if not self._had_units:
            assert self._runtime is not None
            now = self._clock.monotonic()
            if self._runtime.until(self._session.id) > now:
                with self._session.state.lock:
                    self._had_units = bool(self._session.cursors)
                if self._had_units or self._joined_at is None:
                    self._joined_at = now
        if self._joined_at is None:
            return inf
        return max(asked_at, self._joined_at) + self._options.idle_s

    def _consumed(self) -> bool:
        """True if the group has consumed all messages that were there at the start, except for
        partitions that are blocked here."""
        assert self._ends is not None
        if not self._session.idle:
            return False
        self._session.commit()
        self._ends = unreached(self._backend, self._session.group, self._ends)
        return self._ends.keys() <= self._session.blocked


class Iteration(Generic[R]):
    """An iterable and an async iterable over the messages that a consumer receives.

    Outside the consumer's `with` block, an iteration joins the group when it begins, and leaves
    when it ends. If it is cancelled or broken off, the message in flight is redelivered, unless the
    `with` block of the consumer continues.
    """

    def __init__(self, poller: Poller, deliver: Callable[[SessionUnit], Iterator[R]]) -> None:
        self._poller = poller
        self._deliver = deliver

    def __iter__(self) -> Iterator[R]:
        poller = self._poller
        with poller.alone(threading.get_ident()), nullcontext() if poller.begun else poller:
            while True:
                with poller.raising():
                    owned = poller.poll()
                if owned is None:
                    return
                yield from self._deliver(owned)

    async def __aiter__(self) -> AsyncIterator[R]:
        loop, abandoned = asyncio.get_running_loop(), threading.Event()
        pool = ThreadPoolExecutor(1, "tailrace deliveries")
        poller = self._poller
        async with AsyncExitStack() as block:
            block.enter_context(poller.alone(asyncio.current_task()))
            if not poller.begun:
                await block.enter_async_context(poller)
            block.callback(pool.shutdown, wait=False)
            block.callback(poller.interrupt)
            block.callback(abandoned.set)
            while True:
                with poller.raising():
                    owned = await loop.run_in_executor(pool, poller.poll, abandoned)
                if owned is None:
                    return
                for each in self._deliver(owned):
                    yield each
