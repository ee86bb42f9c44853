"""Consumers on asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tailrace.delivery.delivery import Delivery
from tailrace.errors import DeliveryFailed, Error
from tailrace.group.consumer.consumer import Consumer
from tailrace.hub.topic import Topic
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.groups import unacked_values
from tests.support.topics import push
from tests.support.waiting import until


def test_async_iteration_delivers_the_same_and_leaves_the_event_loop_free(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 100)
    got: list[int] = []

    async def consume_all() -> None:
        async with consume(topic, runtime, limit=101) as consumer:
            async for delivery in consumer:
                got.append(delivery.value)

    async def both() -> None:
        work = asyncio.create_task(consume_all())
        while len(got) < 100:
            await asyncio.sleep(0.005)
        for _ in range(5):  # The consumer waits for a message that only comes if the loop is free.
            await asyncio.sleep(0.005)
        push(topic, 1, first=100)
        runtime.wake_session()
        await work

    asyncio.run(both())
    assert sorted(got) == list(range(101))
    assert unacked_values(topic) == []


def test_a_cancelled_async_loop_ends_and_loses_nothing(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    got: list[int] = []

    consumer = consume(topic, runtime)

    async def consume_until_cancelled() -> None:
        async with consumer:
            async for delivery in consumer:
                got.append(delivery.value)

    async def cancelling() -> None:
        work = asyncio.create_task(consume_until_cancelled())
        while len(got) < 10 or consumer.stats().acknowledged < 10:
            await asyncio.sleep(0.005)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cancelling())
    assert runtime.left
    assert unacked_values(topic) == []


def test_async_batches_deliver_the_same_as_synchronous_ones(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 100)

    async def count() -> int:
        async with consume(topic, runtime, until="end", batch_size=7) as consumer:
            return sum([batch.num_rows async for batch in consumer.batches()])

    assert asyncio.run(count()) == 100
    assert unacked_values(topic) == []


def test_async_batches_without_a_block_leave_the_group_at_their_end(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)

    async def count() -> int:
        batches = consume(topic, runtime, until="end").batches()
        return sum([batch.num_rows async for batch in batches])

    assert asyncio.run(count()) == 10
    assert runtime.left
    assert unacked_values(topic) == []


def test_cancelled_async_batches_end_and_lose_nothing(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    rows = 0

    async def consume_until_cancelled() -> None:
        nonlocal rows
        async for batch in consume(topic, runtime).batches():
            rows += batch.num_rows

    async def cancelling() -> None:
        work = asyncio.create_task(consume_until_cancelled())
        while rows < 10 or unacked_values(topic):
            assert runtime.session is None or not work.done()
            if runtime.session is not None:
                await asyncio.to_thread(runtime.joined.save)
            await asyncio.sleep(0.005)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cancelling())
    until(lambda: runtime.left)
    assert unacked_values(topic) == []


def test_a_cancelled_async_loop_leaves_no_thread_behind_while_its_block_continues(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    def threads() -> list[str]:
        return [each.name for each in threading.enumerate() if "tailrace deliveries" in each.name]

    async def first_of(consumer: Consumer[Any]) -> Delivery[Any]:
        return await anext(aiter(consumer))

    async def cancelling() -> None:
        async with consume(topic, runtime) as consumer:
            work = asyncio.create_task(first_of(consumer))
            while not runtime.awaited:
                await asyncio.sleep(0.005)
            assert threads()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            await asyncio.to_thread(until, lambda: not threads(), within_s=10)

    asyncio.run(cancelling())


def test_a_failure_that_a_cancelled_async_loop_did_not_receive_is_raised_by_the_next_loop(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    received: list[Delivery[Any]] = []

    async def receive(consumer: Consumer[Any]) -> None:
        async for delivery in consumer:
            received.append(delivery)

    async def cancelling() -> None:
        async with consume(topic, runtime, ack="manual", attempts=1) as consumer:
            work = asyncio.create_task(receive(consumer))
            while not received:
                await asyncio.sleep(0.001)
            received[0].nack()
            cursors = consumer._session.cursors.values()
            until(lambda: not any(cursor.failures for cursor in cursors))  # blocks the event loop
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            with pytest.raises(DeliveryFailed):
                await asyncio.wait_for(receive(consumer), 10)

    asyncio.run(cancelling())


def test_a_second_task_that_iterates_is_refused(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 3, keys=1)

    async def iterate(consumer: Consumer[Any]) -> int:
        async for delivery in consumer:
            await asyncio.sleep(0.05)
            assert delivery.value in unacked_values(topic)
        return 3 - len(unacked_values(topic))

    async def both() -> list[int | BaseException]:
        async with consume(topic, runtime, limit=3) as consumer:
            tasks = [iterate(consumer), iterate(consumer)]
            return await asyncio.gather(*tasks, return_exceptions=True)

    _, refused = asyncio.run(both())
    assert isinstance(refused, Error)
    assert "another thread or task" in str(refused)
    assert unacked_values(topic) == []
