"""Handlers: functions that are called with each delivery of a consumer, here or in a thread.

A handler is a function, or a coroutine function. `call_each` calls it from a thread, and awaits on
an event loop of its own; `tailrace.group.consumer.async_handlers` calls it on the caller's loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

from tailrace.delivery.delivery import Delivery
from tailrace.errors import DeliveryFailed, Error, HubClosed
from tailrace.group.consumer.failure_handling import FailureHandling

T = TypeVar("T")
A = TypeVar("A")

Handler: TypeAlias = Callable[[Delivery[T]], object]
BatchHandler: TypeAlias = Callable[[list[Delivery[T]]], object]

_log: Final = logging.getLogger("tailrace.group")


def awaits(function: object) -> bool:
    """True if a function is a coroutine function, or an object whose call is one."""
    call = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def call_each(
    deliveries: Iterable[Delivery[T]], handler: Handler[T], handling: FailureHandling
) -> None:
    """Call the handler with each delivery until there are no more, or the consumer is stopped.

    `handling` decides what follows an error of the handler, a last attempt and an outage.
    """
    with Caller() as call:
        while not handling.stopping:
            try:
                for delivery in deliveries:
                    try:
                        call(handler, delivery)
                    except (Exception, asyncio.CancelledError) as error:
                        handling.attempt_failed(delivery, error)
                    else:
                        handling.worked()
                return
            except DeliveryFailed as failed:
                _give_up(failed, handling, call)
            except (Error, OSError) as error:
                handling.pause(error)


def _give_up(failed: DeliveryFailed, handling: FailureHandling, call: Caller) -> None:
    """Execute the action for a message that failed its last attempt; retry after an outage."""
    on_failed = handling.resolver_of(failed)
    while not handling.stopping:
        try:
            call(on_failed, failed)
        except Error as error:
            handling.pause(error)
        else:
            return


class Caller:
    """Calls functions, and awaits what they return, if it can be awaited, on a loop of its own.

    The loop lives as long as the `with` block, so what a handler opens on it can be used again.
    """

    def __enter__(self) -> Self:
        self._runner: asyncio.Runner | None = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            self._runner.close()

    def __call__(self, function: Callable[[A], object], argument: A) -> None:
        """Call a function, and wait until it is done."""
        result = function(argument)
        if inspect.isawaitable(result):
            if self._runner is None:
                self._runner = asyncio.Runner()
            self._runner.run(_awaited(result))


async def _awaited(result: Awaitable[Any]) -> None:
    await result


class HandlerThread:
    """A thread that runs a consumer. An error that ends it is logged, and raised once by `join`."""

    def __init__(self, group: str, act: Callable[[], None]) -> None:
        self._group = group
        self._act = act
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"tailrace {group}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    @property
    def current(self) -> bool:
        """True if the caller is this thread."""
        return self._thread is threading.current_thread()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the thread. False after the timeout. Raises its error, once."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        error, self._error = self._error, None
        if error is not None:
            raise error
        return True

    def _run(self) -> None:
        try:
            self._act()
        except HubClosed as error:
            _log.warning(
                "a consumer of group %s ended without a call of shutdown: %s", self._group, error
            )
            self._error = error
        except BaseException as error:
            _log.error("a consumer of group %s ended", self._group, exc_info=error)
            self._error = error
