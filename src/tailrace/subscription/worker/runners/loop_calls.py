"""Calls of a handler that is a coroutine function: all on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tailrace.subscription.worker.calls import Call, CallSource, result_of, timed_out
from tailrace.subscription.worker.runners.running_calls import STILL_RUNS, RunningCalls

GRACE_S: Final = 5.0
"""How long a coroutine that was cancelled may take to end before its call is given up."""


class LoopCalls:
    """Awaits a coroutine function for each call. A call that takes too long is cancelled; one that
    does not end then is given up: see `RunningCalls`. `finish` is awaited when all have ended."""

    def __init__(
        self,
        name: str,
        invoke: Callable[[Call], Any],
        source: CallSource,
        *,
        concurrency: int,
        timeout_s: float,
        monotonic: Callable[[], float],
        finish: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._finish = finish
        self._concurrency = concurrency
        self._invoke = invoke
        self._source = source
        self._timeout_s = timeout_s
        self._running = RunningCalls(
            name,
            source,
            timeout_s=timeout_s,
            grace_s=GRACE_S,
            given_up_max=concurrency,
            monotonic=monotonic,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"tailrace {name}", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._mutex = threading.Lock()
        """Held while the loop is called from outside, so that it is not closed meanwhile."""
        self._woken = self._stopped = False

    def start(self) -> None:
        """Start the thread of the loop."""
        self._thread.start()

    def wake(self) -> None:
        """Let the loop take the calls that are possible now."""
        with self._mutex:
            if not (self._woken or self._stopped):
                self._woken = True
                self._loop.call_soon_threadsafe(self._take)

    def expire(self) -> float:
        """Give up the calls that do not end. Returns when to call this again."""
        if self._running.give_up():
            self.wake()
        return self._running.next_deadline

    def stop(self) -> None:
        """Cancel the calls that still run, and end the loop."""
        with self._mutex:
            if not self._stopped:
                self._stopped = True
                self._loop.call_soon_threadsafe(self._end)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            pending = asyncio.gather(*self._tasks, return_exceptions=True)
            self._loop.run_until_complete(asyncio.wait((pending,), timeout=GRACE_S))
            if self._finish is not None:
                finished = asyncio.wait_for(self._finish(), GRACE_S)
                self._loop.run_until_complete(finished)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._loop.stop()

    def _take(self) -> None:
        self._woken = False
        try:
            self._take_calls()
        except BaseException as error:
            self._source.fail(error)

    def _take_calls(self) -> None:
        while not self._stopped and self._has_room:
            call = self._source.next_call()
            if call is None:
                return
            task = self._loop.create_task(self._call(call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def _has_room(self) -> bool:
        return len(self._tasks) - self._running.given_up < self._concurrency

    async def _call(self, call: Call) -> None:
        try:
            await self._await_handler(call)
        except BaseException as error:
            self._source.fail(error)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)  # it leaves its place to the next
        self._take()

    async def _await_handler(self, call: Call) -> None:
        if not self._running.begin(call):
            self._source.ended(call, STILL_RUNS)
            return
        error: BaseException | None = None
        timeout = asyncio.timeout(self._timeout_s)
        try:
            async with timeout:
                await self._invoke(call)
        except BaseException as raised:
            error = raised
        if self._running.end(call):
            late = error is not None and timeout.expired()
            outcome = timed_out(self._timeout_s) if late else result_of(call, error)
            self._source.ended(call, outcome)
