"""What a consumer gets, for `for` and for `async for` alike."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, nullcontext
from typing import Generic, TypeVar

from tailrace.group.owned import Owned
from tailrace.group.part import Part

R = TypeVar("R")


class Iteration(Generic[R]):
    """An iterable and an async iterable over what a consumer is handed, turn by turn.

    An iteration that is in no block takes part in the group for itself. One that is cancelled or
    broken off gives back what it had in hand, unless the consumer's block goes on.
    """

    def __init__(self, part: Part, hand_out: Callable[[Owned], Iterator[R]]) -> None:
        self._part = part
        self._hand_out = hand_out

    def __iter__(self) -> Iterator[R]:
        part = self._part
        with part.alone(threading.get_ident()), nullcontext() if part.begun else part:
            while (owned := part.turn()) is not None:
                yield from self._hand_out(owned)

    async def __aiter__(self) -> AsyncIterator[R]:
        loop, abandoned = asyncio.get_running_loop(), threading.Event()
        pool = ThreadPoolExecutor(1, "tailrace deliveries")
        part = self._part
        async with AsyncExitStack() as block:
            block.enter_context(part.alone(asyncio.current_task()))
            if not part.begun:
                await block.enter_async_context(part)
            block.callback(pool.shutdown, wait=False)
            block.callback(part.rouse)
            block.callback(abandoned.set)
            while (owned := await loop.run_in_executor(pool, part.turn, abandoned)) is not None:
                for each in self._hand_out(owned):
                    yield each
