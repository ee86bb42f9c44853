"""Subscriptions and their workers, awaited."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, Self, Unpack

from tailrace.aio.threaded import awaited, own_thread
from tailrace.group.consumer.handlers import Handler
from tailrace.hub.dead_letters import DeadLetters as _DeadLetters
from tailrace.hub.subscription import Subscription as _Subscription
from tailrace.subscription.worker.options import StartOptions
from tailrace.subscription.worker.worker import Worker as _Worker
from tailrace.subscription.worker.worker import WorkerStats


class Worker:
    """A worker of a subscription in this process; see `Subscription.start`."""

    def __init__(self, held: _Worker) -> None:
        self.held = held
        self._stopped: Future[bool] | None = None

    @property
    def id(self) -> str:
        """The name of the worker, as ``tailrace subscription show`` prints it."""
        return self.held.id

    @property
    def subscription(self) -> str:
        """The name of its subscription."""
        return self.held.subscription

    def stats(self) -> WorkerStats:
        """Return the shards and the calls of the worker now."""
        return self.held.stats()

    def stop(self) -> None:
        """Call no more messages, and have `wait` return. Returns at once; for signal handlers
        too."""
        self.held.stop()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the worker is stopped; see `tailrace.Worker.wait`."""
        if self.held.wait(0):
            return True
        if self._stopped is None:
            name = f"tailrace {self.subscription} wait"
            self._stopped = own_thread(self.held.wait, name, daemon=True)
        waiting = asyncio.wrap_future(self._stopped)
        try:
            await asyncio.wait([waiting], timeout=timeout_s)
            return waiting.done() and waiting.result()
        finally:
            waiting.cancel()

    async def close(self) -> bool:
        """End the worker; see `tailrace.Worker.close`."""
        name = f"tailrace {self.subscription} close"
        return await asyncio.wrap_future(own_thread(self.held.close, name, daemon=False))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.stop()
        await self.close()


class DeadLetters:
    """The dead letters of a subscription; see `tailrace.Subscription.dead_letters`."""

    def __init__(self, held: _DeadLetters) -> None:
        self.held = held

    list = awaited(_DeadLetters.list)
    show = awaited(_DeadLetters.show)
    count = awaited(_DeadLetters.count)
    redeliver = awaited(_DeadLetters.redeliver)
    discard = awaited(_DeadLetters.discard)
    is_pending = awaited(_DeadLetters.is_pending)


class Subscription:
    """A subscription; see `tailrace.Subscription`."""

    def __init__(self, held: _Subscription) -> None:
        self.held = held

    @property
    def name(self) -> str:
        """The name of the subscription."""
        return self.held.name

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self.held.topic

    @property
    def dead_letters(self) -> DeadLetters:
        """Its dead letters: to list, show, redeliver and discard."""
        return DeadLetters(self.held.dead_letters)

    async def start(
        self, handler: Handler[Any] | None = None, **options: Unpack[StartOptions]
    ) -> Worker:
        """Start a worker, for `async with`; see `tailrace.Subscription.start`.

        Coroutine functions are awaited on an event loop of the worker, in another thread.
        """
        return Worker(await asyncio.to_thread(self.held.start, handler, **options))

    async def run(
        self, handler: Handler[Any] | None = None, **options: Unpack[StartOptions]
    ) -> None:
        """Work until the worker ends, or the task is cancelled; see `start`."""
        async with await self.start(handler, **options) as worker:
            await worker.wait()

    describe = awaited(_Subscription.describe)
    explain = awaited(_Subscription.explain)
    group_state = awaited(_Subscription.group_state)
    message = awaited(_Subscription.message)
    pause = awaited(_Subscription.pause)
    resume = awaited(_Subscription.resume)
    plan_reset = awaited(_Subscription.plan_reset)
    reset = awaited(_Subscription.reset)
    update = awaited(_Subscription.update)
    delete = awaited(_Subscription.delete)
