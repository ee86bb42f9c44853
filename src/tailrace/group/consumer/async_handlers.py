"""Handlers on the event loop of the caller: see `tailrace.aio.Consumer.run`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Final, TypeVar

from tailrace.delivery.delivery import Delivery
from tailrace.errors import DeliveryFailed, Error
from tailrace.group.consumer.failure_handling import FailureHandling
from tailrace.group.consumer.handlers import Handler

T = TypeVar("T")
A = TypeVar("A")

_POLL_S: Final = 0.1


async def call_each_async(
    deliveries: AsyncIterable[Delivery[T]], handler: Handler[T], handling: FailureHandling
) -> None:
    """Call the handler with each delivery until there are no more, or the consumer is stopped.

    A coroutine function is awaited on this loop; another function is called in a thread. See
    `tailrace.group.consumer.handlers.call_each`.
    """
    while not handling.stopping:
        try:
            async for delivery in deliveries:
                try:
                    await _call(handler, delivery)
                except (Exception, asyncio.CancelledError) as error:
                    if _cancelled(error):
                        raise
                    handling.attempt_failed(delivery, error)
                else:
                    handling.worked()
            return
        except DeliveryFailed as failed:
            await _give_up(failed, handling)
        except (Error, OSError) as error:
            await _pause(handling, error)


async def begin_async(begin: Callable[[], Awaitable[object]], handling: FailureHandling) -> bool:
    """Await `begin` until it succeeds. False if the consumer is stopped before."""
    while not handling.stopping:
        try:
            await begin()
        except Exception as error:
            await _pause(handling, error)
        else:
            return True
    return False


async def _give_up(failed: DeliveryFailed, handling: FailureHandling) -> None:
    on_failed = handling.resolver_of(failed)
    while not handling.stopping:
        try:
            await _call(on_failed, failed)
        except Error as error:
            await _pause(handling, error)
        else:
            return


async def _pause(handling: FailureHandling, error: Exception) -> None:
    left_s = handling.pause_s(error)
    while left_s > 0 and not handling.stopping:
        await asyncio.sleep(min(left_s, _POLL_S))
        left_s -= _POLL_S


async def _call(function: Callable[[A], object], argument: A) -> None:
    awaits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    )
    result = function(argument) if awaits else await asyncio.to_thread(function, argument)
    if inspect.isawaitable(result):
        await result


def _cancelled(error: BaseException) -> bool:
    """True if the task itself is cancelled, and not only something that the handler awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
