"""Calls of handlers, functions and coroutine functions, in the thread of the test."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from tailrace.delivery.outcome import CallOutcome
from tailrace.errors import Error
from tailrace.subscription.worker.calls import Call, result_of, timed_out

_FAILURES: Final = (Exception, SystemExit, asyncio.CancelledError)
"""What a handler raises is a failed attempt, as in a worker. Not so an interrupt of the test, nor
`pytest.fail`, which end the test."""


class Handled(NamedTuple):
    """The outcome of a call, and the error that the handler raised; None if it raised none."""

    outcome: CallOutcome
    error: BaseException | None


class HandlerCalls:
    """Calls handlers, one at a time. Coroutine functions are awaited in one event loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def call(self, invoke: Callable[[Call], Any], call: Call, timeout_s: float) -> Handled:
        """Call a handler with a message, by what invokes it.

        A coroutine that takes longer than the timeout, in real time, is cancelled. A function is
        not interrupted.
        """
        try:
            result = invoke(call)
        except _FAILURES as error:
            return Handled(result_of(call, error), error)
        if inspect.isawaitable(result):
            return self._await(call, result, timeout_s)
        return Handled(result_of(call, None), None)

    def close(self) -> None:
        """Close the event loop."""
        self._runner.close()

    def _await(self, call: Call, result: Awaitable[Any], timeout_s: float) -> Handled:
        if asyncio._get_running_loop() is not None:
            if inspect.iscoroutine(result):
                result.close()
            raise Error(
                "the handler is a coroutine function, and the test runs in an event loop itself",
                "write the test with `def`, not `async def`: the run has an event loop of its own",
            )
        awaited = _awaited(call, result, timeout_s)
        return self._runner.run(awaited, context=contextvars.copy_context())


async def _awaited(call: Call, result: Awaitable[Any], timeout_s: float) -> Handled:
    task, timeout = asyncio.current_task(), asyncio.timeout(timeout_s)
    assert task is not None
    try:
        async with timeout:
            await result
    except _FAILURES as error:
        if task.cancelling():  # the test is interrupted
            raise
        late = timeout.expired()
        return Handled(timed_out(timeout_s) if late else result_of(call, error), error)
    return Handled(result_of(call, None), None)
