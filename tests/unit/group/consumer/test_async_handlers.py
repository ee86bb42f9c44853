"""Coroutine functions as handlers: of a consumer in a thread, and on the caller's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tailrace.aio
from tailrace import Retry
from tailrace.delivery.delivery import Delivery
from tailrace.errors import DeliveryFailed, Error
from tailrace.hub.topic import Topic
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.groups import unacked_values
from tests.support.topics import push

SOON = Retry(attempts=2, first="1ms")


def test_a_coroutine_function_is_awaited_on_one_loop_for_all_messages(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    got: list[int] = []
    loops = set()

    async def handler(delivery: Delivery[Any]) -> None:
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())
        if delivery.value == 4 and delivery.attempt == 1:
            raise ValueError("not yet")
        got.append(delivery.value)

    consume(topic, runtime, until="end").run(handler, retry=SOON)
    assert sorted(got) == list(range(10))
    assert len(loops) == 1
    assert all(loop.is_closed() for loop in loops)
    assert unacked_values(topic) == []


def test_a_started_consumer_awaits_its_handler_and_its_on_failed(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 3)
    parked = []

    class Handler:
        async def __call__(self, delivery: Delivery[Any]) -> None:
            await asyncio.sleep(0)
            if delivery.value == 1:
                raise asyncio.CancelledError  # of something that it awaited

    async def park(failed: DeliveryFailed) -> None:
        await asyncio.sleep(0)
        parked.append((failed.delivery.value, type(failed.__cause__)))
        failed.delivery.ack()

    consumer = consume(topic, runtime, until="end")
    consumer.start(Handler(), retry=SOON, on_failed=park)
    assert consumer.wait("1m")
    assert parked == [(1, asyncio.CancelledError)]
    assert unacked_values(topic) == []


def test_a_run_inside_an_event_loop_names_the_consumer_that_can_be_awaited(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    async def handler(delivery: Delivery[Any]) -> None:
        raise AssertionError("nobody awaits it")

    async def inside() -> None:
        consume(topic, runtime, until="end").run(handler)

    with pytest.raises(Error, match=r"await the run of a consumer of tailrace\.aio"):
        asyncio.run(inside())
    assert not runtime.posted


def _with_consumer(
    directory: Path, use: Callable[[tailrace.aio.Consumer[int]], Awaitable[None]], **options: Any
) -> int:
    """Push five messages, consume them, and return the lag that is left."""

    async def run() -> int:
        async with tailrace.aio.open(directory / "hub", sync="none") as hub:
            orders = await hub.create_topic("orders", int, partitions=1)
            await orders.push_many([(f"c{number}", number) for number in range(5)])
            await use(await orders.tail(group="billing", **options))
            return sum(each.lag for each in await (await hub.group("billing")).lag())

    return asyncio.run(run())


def test_aio_awaits_a_handler_on_the_loop_of_the_caller(tmp_path: Path) -> None:
    got: list[int] = []

    async def use(consumer: tailrace.aio.Consumer[int]) -> None:
        loop = asyncio.get_running_loop()

        async def handler(delivery: Delivery[int]) -> None:
            assert asyncio.get_running_loop() is loop
            if delivery.value == 2 and delivery.attempt == 1:
                raise ValueError("not yet")
            got.append(delivery.value)

        await consumer.run(handler, retry=SOON)

    assert _with_consumer(tmp_path, use, until="end") == 0
    assert sorted(got) == list(range(5))


def test_aio_calls_an_ordinary_function_in_a_thread(tmp_path: Path) -> None:
    threads = set()

    async def use(consumer: tailrace.aio.Consumer[int]) -> None:
        await consumer.run(lambda delivery: threads.add(threading.get_ident()))

    assert _with_consumer(tmp_path, use, until="end") == 0
    assert threading.get_ident() not in threads


def test_aio_ends_by_shutdown_and_raises_what_stops_it(tmp_path: Path) -> None:
    async def use(consumer: tailrace.aio.Consumer[int]) -> None:
        async def handler(delivery: Delivery[int]) -> None:
            if delivery.value == 4:
                consumer.shutdown()

        await asyncio.wait_for(consumer.run(handler), 60)
        assert consumer.stats().acknowledged == 5

    assert _with_consumer(tmp_path, use) == 0


def test_a_message_in_flight_when_an_aio_run_is_cancelled_is_redelivered(tmp_path: Path) -> None:
    async def use(consumer: tailrace.aio.Consumer[int]) -> None:
        entered = asyncio.Event()

        async def handler(delivery: Delivery[int]) -> None:
            entered.set()
            await asyncio.sleep(3600)

        running = asyncio.create_task(consumer.run(handler))
        await asyncio.wait_for(entered.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert _with_consumer(tmp_path, use) == 5
