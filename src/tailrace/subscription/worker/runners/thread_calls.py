"""Calls of a handler that is a function: each in one of several threads.

A thread cannot be ended from outside. A call that takes too long counts as a failed attempt, its
slot is free for another message, and another thread takes its place. See `RunningCalls`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tailrace.subscription.worker.calls import Call, CallSource, result_of
from tailrace.subscription.worker.runners.running_calls import STILL_RUNS, RunningCalls

_log: Final = logging.getLogger("tailrace.subscription")


class ThreadCalls:
    """Calls a function in at most `concurrency` threads, and in one more for each call that was
    given up and still runs."""

    def __init__(
        self,
        name: str,
        invoke: Callable[[Call], Any],
        source: CallSource,
        *,
        concurrency: int,
        timeout_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._name = name
        self._invoke = invoke
        self._source = source
        self._concurrency = concurrency
        self._running = RunningCalls(
            name,
            source,
            timeout_s=timeout_s,
            grace_s=0.0,
            given_up_max=concurrency,
            monotonic=monotonic,
        )
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self._wakes = 0
        self._stopped = False

    def start(self) -> None:
        """Do nothing: threads start when there are calls."""

    def wake(self) -> None:
        """Let a thread take a call; it wakes the next one."""
        with self._changed:
            self._wakes += 1
            self._wake_one()

    def expire(self) -> float:
        """Give up the calls that take too long. Returns when to call this again."""
        if self._running.give_up():
            self.wake()
        return self._running.next_deadline

    def stop(self) -> None:
        """End the threads, each once its call has ended."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _wake_one(self) -> None:
        if self._idle:
            self._changed.notify()
        elif not self._stopped and self._threads < self._threads_max:
            thread = threading.Thread(target=self._run, name=f"tailrace {self._name}", daemon=True)
            thread.start()
            self._threads += 1

    @property
    def _threads_max(self) -> int:
        return self._concurrency + self._running.given_up

    def _run(self) -> None:
        try:
            self._take_calls()
        except BaseException as error:
            self._source.fail(error)

    def _take_calls(self) -> None:
        while True:
            with self._changed:
                if self._stopped or self._threads > self._threads_max:
                    self._threads -= 1
                    return
                seen = self._wakes
            call = self._source.next_call()
            with self._changed:
                if call is None:
                    self._idle += 1
                    self._await_wake(seen)
                    self._idle -= 1
                    continue
                self._wake_one()
            self._call(call)

    def _await_wake(self, seen: int) -> None:
        self._changed.wait_for(lambda: self._stopped or self._wakes != seen)

    def _call(self, call: Call) -> None:
        if not self._running.begin(call):
            self._source.ended(call, STILL_RUNS)
            return
        error: BaseException | None = None
        try:
            result = self._invoke(call)
            if inspect.isawaitable(result):
                asyncio.run(_awaited(result))
        except BaseException as raised:
            error = raised
        if self._running.end(call):
            self._source.ended(call, result_of(call, error))
        else:
            _log.warning(
                "%s: the call of %s has ended after it was given up, %s",
                self._name,
                call.label,
                "with success" if error is None else f"with {error!r}",
            )


async def _awaited(result: Awaitable[Any]) -> None:
    await result
