"""Topics, groups, subscriptions and queues for programs on asyncio: the same names, awaited.

::

    async with tailrace.aio.open("./data") as hub:
        orders = await hub.create_topic("orders", Order, exist_ok=True)
        await orders.push(Order(1, "c7", 9.5), key="c7")
        async with await orders.tail(group="billing") as consumer:
            async for delivery in consumer:
                await charge(delivery.value)

This module has no logic of its own: each call runs in a thread, and the event loop continues. For
many single pushes use a pipelined producer: `Topic.producer`.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

import pyarrow as pa

from tailrace.aio.queue import AwaitedConsumer as QueueConsumer
from tailrace.aio.queue import AwaitedReplay as Replay
from tailrace.aio.queue import Queue
from tailrace.aio.subscription import DeadLetters, Subscription, Worker
from tailrace.aio.threaded import ThreadedContext, awaited
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.retry import Retry
from tailrace.group.consumer.consumer import Consumer as _Consumer
from tailrace.group.consumer.consumer import ConsumerStats
from tailrace.group.consumer.failure_handling import OnFailed
from tailrace.group.consumer.handlers import Handler
from tailrace.group.consumer.options import TailOptions
from tailrace.group.consumer.poll import Iteration
from tailrace.group.group import Group as _Group
from tailrace.group.store.start import StartLike
from tailrace.hub.hub import Hub as _Hub
from tailrace.hub.opening import open as _open
from tailrace.hub.subscription import SubscriptionOptions
from tailrace.hub.topic import Topic as _Topic
from tailrace.message import Receipt
from tailrace.settings import HubSettings
from tailrace.topic.pending import Pending
from tailrace.topic.producer import Producer as _Producer
from tailrace.topic.storage_topics import StorageTopicInfo

__all__ = [
    "Consumer",
    "DeadLetters",
    "Group",
    "Hub",
    "Producer",
    "Queue",
    "QueueConsumer",
    "Replay",
    "Subscription",
    "Topic",
    "Worker",
    "open",
]

T = TypeVar("T")


class _Tail(TailOptions, total=False):
    start: StartLike


class _SharedTail(_Tail, total=False):
    group: str | None


class Producer(ThreadedContext, Generic[T]):
    """A pipelined producer whose pushes are awaited: each returns its receipt once it is stored."""

    def __init__(self, held: _Producer[T]) -> None:
        self.held = held

    async def push(self, value: T, **options: Any) -> Receipt:
        """Queue the message, and return its receipt when its batch is stored.

        Await many of these together, for example with `asyncio.gather`, so that batches fill.
        """
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()

        def resolve() -> None:
            if not stored.done():
                stored.set_result(None)

        pending: Pending = self.held.push(value, **options)
        pending.add_done_callback(lambda _: loop.call_soon_threadsafe(resolve))
        await stored
        return pending.result(0)

    flush = awaited(_Producer.flush)
    close = awaited(_Producer.close)


class Consumer(Generic[T]):
    """A consumer of a group, for `async with` and `async for`; see `tailrace.Consumer`."""

    def __init__(self, held: _Consumer[T]) -> None:
        self.held = held

    @property
    def id(self) -> str:
        """The unique name of the consumer: the id that was given, and a random part."""
        return self.held.id

    @property
    def group(self) -> str:
        """The name of the group."""
        return self.held.group

    @property
    def batch_size(self) -> int:
        """The maximum number of rows of one of the `batches`."""
        return self.held.batch_size

    def __aiter__(self) -> AsyncIterator[Delivery[T]]:
        return self.held.__aiter__()

    def batches(self) -> Iteration[pa.RecordBatch]:
        """Return the messages in columns, for `async for`; see `tailrace.Consumer.batches`."""
        return self.held.batches()

    async def run(
        self,
        handler: Handler[T],
        *,
        retry: Retry | None = None,
        on_failed: OnFailed | None = None,
    ) -> None:
        """Call the handler with each delivery until `shutdown`, or until a loop would end.

        Coroutine functions are awaited on this event loop, one delivery at a time; other functions
        are called in a thread. Otherwise as `tailrace.Consumer.run`. If the task is cancelled, the
        message in flight is redelivered.
        """
        await self.held.run_async(handler, retry=retry, on_failed=on_failed)

    def shutdown(self) -> None:
        """End the iteration once the delivery in flight is done. Returns at once; for signal
        handlers too."""
        self.held.shutdown()

    def stats(self) -> ConsumerStats:
        """Return the partitions and counts of now."""
        return self.held.stats()

    async def __aenter__(self) -> Self:
        await self.held.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.held.__aexit__(*raised)

    def __repr__(self) -> str:
        return repr(self.held)


class Topic(Generic[T]):
    """A topic; see `tailrace.Topic`."""

    def __init__(self, held: _Topic[T]) -> None:
        self.held = held

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self.held.name

    push = awaited(_Topic.push)
    push_many = awaited(_Topic.push_many)
    append = awaited(_Topic.append)
    read = awaited(_Topic.read)
    scale = awaited(_Topic.scale)
    plan_scale = awaited(_Topic.plan_scale)
    add_storage_topic = awaited(_Topic.add_storage_topic)
    switch_produce = awaited(_Topic.switch_produce)
    plan_trim = awaited(_Topic.plan_trim)
    trim = awaited(_Topic.trim)

    async def storage_topics(self) -> list[StorageTopicInfo]:
        """Return the storage topics as they are now, oldest first."""
        return await asyncio.to_thread(lambda: self.held.storage_topics)

    async def produce_pointer(self) -> int:
        """Return the index of the storage topic that pushes go to now."""
        return await asyncio.to_thread(lambda: self.held.produce_pointer)

    async def batches(
        self, storage: int, partition: int, start: int = 0, end: int | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield the records of a partition in columns, with `async for`; see
        `tailrace.Topic.batches`."""
        found = await asyncio.to_thread(self.held.batches, storage, partition, start, end)
        while (batch := await asyncio.to_thread(next, found, None)) is not None:
            yield batch

    async def producer(self, **options: Any) -> Producer[T]:
        """Return a pipelined producer; see `tailrace.Topic.producer`."""
        return Producer(await asyncio.to_thread(self.held.producer, **options))

    async def tail(self, *, group: str, **options: Unpack[_Tail]) -> Consumer[T]:
        """Join a group as a consumer, for `async with` and `async for`; see
        `tailrace.Topic.tail`."""
        return Consumer(await asyncio.to_thread(self.held.tail, group=group, **options))


class Group:
    """A group; see `tailrace.Group`."""

    def __init__(self, held: _Group) -> None:
        self.held = held

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.held.name

    describe = awaited(_Group.describe)
    lag = awaited(_Group.lag)
    history = awaited(_Group.history)
    seek = awaited(_Group.seek)
    skip = awaited(_Group.skip)
    delete = awaited(_Group.delete)


class Hub(ThreadedContext):
    """An open hub; see `tailrace.Hub`."""

    def __init__(self, held: _Hub) -> None:
        self.held = held

    @overload
    async def create_topic(self, name: str, type: type[T], **options: Any) -> Topic[T]: ...
    @overload
    async def create_topic(self, name: str, type: None = None, **options: Any) -> Topic[Any]: ...
    async def create_topic(self, name: str, type: Any = None, **options: Any) -> Topic[Any]:
        """Create a topic and open it; see `tailrace.Hub.create_topic`."""
        return Topic(await asyncio.to_thread(lambda: self.held.create_topic(name, type, **options)))

    @overload
    async def topic(self, name: str, type: type[T], *, any_type: bool = False) -> Topic[T]: ...
    @overload
    async def topic(
        self, name: str, type: None = None, *, any_type: bool = False
    ) -> Topic[Any]: ...
    async def topic(self, name: str, type: Any = None, *, any_type: bool = False) -> Topic[Any]:
        """Open a topic; see `tailrace.Hub.topic`."""
        return Topic(await asyncio.to_thread(self.held.topic, name, type, any_type=any_type))

    @overload
    async def tail(
        self, topics: str, type: type[T], **options: Unpack[_SharedTail]
    ) -> Consumer[T]: ...
    @overload
    async def tail(
        self, topics: str, type: None = None, **options: Unpack[_SharedTail]
    ) -> Consumer[Any]: ...
    async def tail(
        self, topics: str, type: Any = None, **options: Unpack[_SharedTail]
    ) -> Consumer[Any]:
        """Join a group of one or several topics as a consumer; see `tailrace.Hub.tail`."""
        return Consumer(await asyncio.to_thread(lambda: self.held.tail(topics, type, **options)))

    async def group(self, name: str) -> Group:
        """Return a group; see `tailrace.Hub.group`."""
        return Group(await asyncio.to_thread(self.held.group, name))

    async def create_subscription(
        self, name: str, **options: Unpack[SubscriptionOptions]
    ) -> Subscription:
        """Create a subscription; see `tailrace.Hub.create_subscription`."""
        create = self.held.create_subscription
        return Subscription(await asyncio.to_thread(lambda: create(name, **options)))

    async def subscription(self, name: str) -> Subscription:
        """Return a subscription; see `tailrace.Hub.subscription`."""
        return Subscription(await asyncio.to_thread(self.held.subscription, name))

    @overload
    async def queue(self, name: str, type: type[T], **options: Any) -> Queue[T]: ...
    @overload
    async def queue(self, name: str, type: None = None, **options: Any) -> Queue[Any]: ...
    async def queue(self, name: str, type: Any = None, **options: Any) -> Queue[Any]:
        """Open a queue, or create it; see `tailrace.Hub.queue`."""
        return Queue(await asyncio.to_thread(lambda: self.held.queue(name, type, **options)))

    topics = awaited(_Hub.topics)
    groups = awaited(_Hub.groups)
    subscriptions = awaited(_Hub.subscriptions)
    queues = awaited(_Hub.queues)
    delete_topic = awaited(_Hub.delete_topic)
    delete_queue = awaited(_Hub.delete_queue)
    close = awaited(_Hub.close)


class _Opening:
    """A hub that is being opened: await it, or enter it with `async with`."""

    def __init__(self, start: Callable[[], _Hub]) -> None:
        self._start = start
        self._opened: Hub | None = None

    def __await__(self) -> Any:
        return self._open().__await__()

    async def _open(self) -> Hub:
        opening = asyncio.get_running_loop().run_in_executor(None, self._start)
        try:
            self._opened = Hub(await asyncio.shield(opening))
        except asyncio.CancelledError:
            # The thread continues, and nothing else would close the hub that it opens.
            await asyncio.wait([opening])
            if opening.exception() is None:
                await asyncio.to_thread(opening.result().close)
            raise
        return self._opened

    async def __aenter__(self) -> Hub:
        return await self._open()

    async def __aexit__(self, *raised: Any) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(*raised)


def open(
    path: str | os.PathLike[str] | None = None,
    *,
    sync: str | None = None,
    create: bool = True,
    mode: Literal["rw", "ro"] = "rw",
    settings: HubSettings | None = None,
) -> _Opening:
    """Open a hub: ``async with open(…) as hub``, or ``await open(…)``; see `tailrace.open`."""
    start = functools.partial(_open, path, sync=sync, create=create, mode=mode, settings=settings)
    return _Opening(start)
