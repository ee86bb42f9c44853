"""Queues and their consumers, awaited."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar, Unpack

from tailrace.aio.subscription import DeadLetters
from tailrace.aio.threaded import ThreadedContext, awaited
from tailrace.hub.queue import Queue as _Queue
from tailrace.hub.queue import QueueConsumer as _QueueConsumer
from tailrace.hub.replay import Replay as _Replay
from tailrace.hub.replay import ReplayOptions
from tailrace.hub.subscription import DeliveryHandler
from tailrace.subscription.worker.worker import WorkerStats
from tailrace.topic.record_builder import Time

T = TypeVar("T")


class AwaitedConsumer(ThreadedContext):
    """A consumer of a queue in this process; see `Queue.tail`."""

    held: _QueueConsumer

    def __init__(self, held: _QueueConsumer) -> None:
        self.held = held

    @property
    def id(self) -> str:
        """The name of the consumer."""
        return self.held.id

    @property
    def guarantee(self) -> str:
        """The guarantee that its handler declares."""
        return self.held.guarantee

    @property
    def is_acking(self) -> bool:
        """False if messages are acknowledged before they are handled."""
        return self.held.is_acking

    @property
    def batch_size(self) -> int:
        """The number of messages that are prepared at a time."""
        return self.held.batch_size

    def stats(self) -> WorkerStats:
        """Return its shards, and its calls by outcome."""
        return self.held.stats()

    def stop(self) -> None:
        """Call no more messages, and have `wait` return. Returns at once; for signal handlers
        too."""
        self.held.stop()

    wait = awaited(_QueueConsumer.wait)
    shutdown = awaited(_QueueConsumer.shutdown)

    def __repr__(self) -> str:
        return repr(self.held)


class AwaitedReplay(ThreadedContext):
    """A replay of a queue; see `tailrace.Replay`."""

    held: _Replay

    def __init__(self, held: _Replay) -> None:
        self.held = held

    @property
    def id(self) -> str:
        """The name of the replay."""
        return self.held.id

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self.held.queue

    @property
    def dead_letters(self) -> DeadLetters:
        """Its own dead letters: to list, show, redeliver and discard."""
        return DeadLetters(self.held.dead_letters)

    def stop(self) -> None:
        """Have `wait` and `run` return. Returns at once; for signal handlers too."""
        self.held.stop()

    async def start(
        self, handler: DeliveryHandler | None = None, **options: Unpack[ReplayOptions]
    ) -> AwaitedReplay:
        """Start to work on the replay in this process, for `async with`; see
        `tailrace.Replay.start`."""
        await asyncio.to_thread(self.held.start, handler, **options)
        return self

    run = awaited(_Replay.run)
    wait = awaited(_Replay.wait)
    progress = awaited(_Replay.progress)
    cancel = awaited(_Replay.cancel)
    close = awaited(_Replay.close)

    def __repr__(self) -> str:
        return repr(self.held)


class Queue(Generic[T]):
    """A queue; see `tailrace.Queue`."""

    def __init__(self, held: _Queue[T]) -> None:
        self.held = held

    @property
    def name(self) -> str:
        """The name of the queue, of its topic and of its subscription."""
        return self.held.name

    @property
    def dead_letters(self) -> DeadLetters:
        """Its dead letters: to list, show, redeliver and discard."""
        return DeadLetters(self.held.dead_letters)

    async def tail(self, handler: DeliveryHandler, **options: Any) -> AwaitedConsumer:
        """Start a consumer, for `async with`; see `tailrace.Queue.tail`.

        Coroutine functions are awaited on an event loop of the consumer, in another thread.
        """
        return AwaitedConsumer(await asyncio.to_thread(self.held.tail, handler, **options))

    async def replay(
        self,
        start: Time,
        end: Time = None,
        handler: DeliveryHandler | None = None,
        *,
        id: str | None = None,
        **options: Unpack[ReplayOptions],
    ) -> AwaitedReplay:
        """Replay the messages of a range of time, for `async with`; see
        `tailrace.Queue.replay`."""
        made = await asyncio.to_thread(self.held.replay, start, end, handler, id=id, **options)
        return AwaitedReplay(made)

    async def resume_replay(
        self, id: str, handler: DeliveryHandler | None = None, **options: Unpack[ReplayOptions]
    ) -> AwaitedReplay:
        """Continue a replay in this process, for `async with`; see
        `tailrace.Queue.resume_replay`."""
        return await (await self.find_replay(id)).start(handler, **options)

    async def find_replay(self, id: str) -> AwaitedReplay:
        """Return a replay, to look at or to cancel. Raises `UnknownReplay`."""
        return AwaitedReplay(await asyncio.to_thread(self.held.find_replay, id))

    async def replays(self) -> list[AwaitedReplay]:
        """Return its replays, the oldest first; see `tailrace.Queue.replays`."""
        return [*map(AwaitedReplay, await asyncio.to_thread(self.held.replays))]

    push = awaited(_Queue.push)
    push_many = awaited(_Queue.push_many)
    stats = awaited(_Queue.stats)
    pause = awaited(_Queue.pause)
    play = awaited(_Queue.play)
    rebalance = awaited(_Queue.rebalance)

    def __repr__(self) -> str:
        return repr(self.held)
