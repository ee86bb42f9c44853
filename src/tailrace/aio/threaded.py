"""Calls of the wrapped objects in threads."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def awaited(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a method that calls the wrapped object's method in a thread."""

    async def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.held, *arguments, **options)

    return functools.update_wrapper(call, method)


def own_thread(call: Callable[[], R], name: str, *, daemon: bool) -> Future[R]:
    """Start a call in a thread of its own: a call that lasts would take one of the few threads that
    all other calls share.

    A program that ends waits for the thread unless it is a `daemon`.
    """
    future: Future[R] = Future()
    future.set_running_or_notify_cancel()  # so that a task that is cancelled does not cancel it

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=daemon).start()
    return future


class ThreadedContext:
    """An object whose `async with` block exits the wrapped object's in a thread."""

    held: Any

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await asyncio.to_thread(self.held.__exit__, *raised)
