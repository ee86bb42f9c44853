"""Topics and groups for programs on asyncio: the same names, awaited.

::

    async with tailrace.aio.open("./data") as hub:
        orders = await hub.create_topic("orders", Order, exist_ok=True)
        await orders.push(Order(1, "c7", 9.5), key="c7")
        async with await orders.tail(group="billing") as deliveries:
            async for delivery in deliveries:
                await charge(delivery.value)

There is no logic here: each call runs in a thread, and the event loop goes on meanwhile. What waits
for the disk in a loop of single pushes is a producer's to pipeline: `Topic.producer`.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

import pyarrow as pa

from tailrace import hub as _hub
from tailrace.group.asked import TailOptions
from tailrace.group.deliveries import Deliveries
from tailrace.group.group import Group as _Group
from tailrace.group.starting import StartLike
from tailrace.group.topic import Topic as _Topic
from tailrace.message import Receipt
from tailrace.settings import HubSettings
from tailrace.topic.pending import Pending
from tailrace.topic.producer import Producer as _Producer
from tailrace.topic.topic import StorageTopicInfo

__all__ = ["Group", "Hub", "Producer", "Topic", "open"]

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class _Tail(TailOptions, total=False):
    start: StartLike


class _SharedTail(_Tail, total=False):
    group: str | None


def _awaited(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The method of what is held, in a thread."""

    async def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.held, *arguments, **options)

    return functools.update_wrapper(call, method)


class _Block:
    """What is left by leaving what it holds, in a thread."""

    held: Any

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await asyncio.to_thread(self.held.__exit__, *raised)


class Producer(_Block, Generic[T]):
    """A pipelined producer whose pushes are awaited: each gives its receipt once it is stored."""

    def __init__(self, held: _Producer[T]) -> None:
        self.held = held

    async def push(self, value: T, **options: Any) -> Receipt:
        """Take the message at once, and give its receipt when its batch is stored.

        Await many of these together, as by `asyncio.gather`, for batches to fill.
        """
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not stored.done():
                stored.set_result(None)

        pending: Pending = self.held.push(value, **options)
        pending.add_done_callback(lambda _: loop.call_soon_threadsafe(settle))
        await stored
        return pending.result(0)

    flush = _awaited(_Producer.flush)
    close = _awaited(_Producer.close)


class Topic(Generic[T]):
    """A topic; see `tailrace.Topic`."""

    def __init__(self, held: _Topic[T]) -> None:
        self.held = held

    @property
    def name(self) -> str:
        """The name."""
        return self.held.name

    push = _awaited(_Topic.push)
    push_many = _awaited(_Topic.push_many)
    append = _awaited(_Topic.append)
    read = _awaited(_Topic.read)
    scale = _awaited(_Topic.scale)
    plan_scale = _awaited(_Topic.plan_scale)
    add_storage_topic = _awaited(_Topic.add_storage_topic)
    switch_produce = _awaited(_Topic.switch_produce)

    async def storage_topics(self) -> list[StorageTopicInfo]:
        """Its storage topics, oldest first, as they are now."""
        return await asyncio.to_thread(lambda: self.held.storage_topics)

    async def produce_pointer(self) -> int:
        """The index of the storage topic that takes pushes now."""
        return await asyncio.to_thread(lambda: self.held.produce_pointer)

    async def batches(
        self, storage: int, partition: int, start: int = 0, end: int | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Records of a partition in columns, for `async for`; see `tailrace.Topic.batches`."""
        found = await asyncio.to_thread(self.held.batches, storage, partition, start, end)
        while (batch := await asyncio.to_thread(next, found, None)) is not None:
            yield batch

    async def producer(self, **options: Any) -> Producer[T]:
        """A pipelined producer; see `tailrace.Topic.producer`."""
        return Producer(await asyncio.to_thread(self.held.producer, **options))

    async def tail(self, *, group: str, **options: Unpack[_Tail]) -> Deliveries[T]:
        """A consumer of a group, for `async with` and `async for`; see `tailrace.Topic.tail`."""
        return await asyncio.to_thread(self.held.tail, group=group, **options)


class Group:
    """A group; see `tailrace.Group`."""

    def __init__(self, held: _Group) -> None:
        self.held = held

    @property
    def name(self) -> str:
        """The name."""
        return self.held.name

    describe = _awaited(_Group.describe)
    lag = _awaited(_Group.lag)
    history = _awaited(_Group.history)
    seek = _awaited(_Group.seek)
    skip = _awaited(_Group.skip)
    delete = _awaited(_Group.delete)


class Hub(_Block):
    """An opened Tailrace; see `tailrace.Hub`."""

    def __init__(self, held: _hub.Hub) -> None:
        self.held = held

    @overload
    async def create_topic(self, name: str, type: type[T], **options: Any) -> Topic[T]: ...
    @overload
    async def create_topic(self, name: str, type: None = None, **options: Any) -> Topic[Any]: ...
    async def create_topic(self, name: str, type: Any = None, **options: Any) -> Topic[Any]:
        """Create a topic and open it; see `tailrace.Hub.create_topic`."""
        return Topic(await asyncio.to_thread(lambda: self.held.create_topic(name, type, **options)))

    @overload
    async def topic(self, name: str, type: type[T]) -> Topic[T]: ...
    @overload
    async def topic(self, name: str, type: None = None) -> Topic[Any]: ...
    async def topic(self, name: str, type: Any = None) -> Topic[Any]:
        """Open a topic; see `tailrace.Hub.topic`."""
        return Topic(await asyncio.to_thread(self.held.topic, name, type))

    @overload
    async def tail(
        self, topics: str, type: type[T], **options: Unpack[_SharedTail]
    ) -> Deliveries[T]: ...
    @overload
    async def tail(
        self, topics: str, type: None = None, **options: Unpack[_SharedTail]
    ) -> Deliveries[Any]: ...
    async def tail(
        self, topics: str, type: Any = None, **options: Unpack[_SharedTail]
    ) -> Deliveries[Any]:
        """A consumer of a group that shares a topic or several; see `tailrace.Hub.tail`."""
        return await asyncio.to_thread(lambda: self.held.tail(topics, type, **options))

    async def group(self, name: str) -> Group:
        """A group; see `tailrace.Hub.group`."""
        return Group(await asyncio.to_thread(self.held.group, name))

    topics = _awaited(_hub.Hub.topics)
    groups = _awaited(_hub.Hub.groups)
    delete_topic = _awaited(_hub.Hub.delete_topic)
    close = _awaited(_hub.Hub.close)


class _Opening:
    """A hub that is being opened: to be awaited, or entered by `async with`."""

    def __init__(self, start: Callable[[], _hub.Hub]) -> None:
        self._start = start
        self._opened: Hub | None = None

    def __await__(self) -> Any:
        return self._open().__await__()

    async def _open(self) -> Hub:
        opening = asyncio.get_running_loop().run_in_executor(None, self._start)
        try:
            self._opened = Hub(await asyncio.shield(opening))
        except asyncio.CancelledError:
            # The thread goes on, and nobody else would close what it opens.
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
    settings: HubSettings | None = None,
) -> _Opening:
    """Open a hub: ``async with open(…) as hub``, or ``await open(…)``; see `tailrace.open`."""
    return _Opening(functools.partial(_hub.open, path, sync=sync, settings=settings))
