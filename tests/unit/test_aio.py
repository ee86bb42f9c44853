"""`tailrace.aio`: the parts that are more than a call in a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import tailrace.aio
from tests.support.waiting import DEADLINE_S


def test_a_topic_reports_its_storage_topics(tmp_path: Path) -> None:
    async def look() -> None:
        async with tailrace.aio.open(tmp_path / "hub", sync="none") as hub:
            orders = await hub.create_topic("orders", partitions=2)
            await orders.push_many([(f"c{number}", number) for number in range(10)])
            await orders.scale(4)
            assert await orders.produce_pointer() == 1
            assert [each.partitions for each in await orders.storage_topics()] == [2, 4]
            rows = [
                batch.num_rows for number in range(2) async for batch in orders.batches(0, number)
            ]
            assert sum(rows) == 10

    asyncio.run(look())


def test_topics_producers_and_batches_have_the_type_and_the_blocks_of_the_others(
    tmp_path: Path,
) -> None:
    async def count() -> tuple[int, int]:
        async with tailrace.aio.open(tmp_path / "hub", sync="none") as hub:
            numbers: tailrace.aio.Topic[int] = await hub.create_topic("numbers", int, partitions=2)
            async with await numbers.producer() as producer:
                receipts = await asyncio.gather(*(producer.push(n, key=f"c{n}") for n in range(9)))
            with pytest.raises(tailrace.Error):
                await producer.push(9)
            rows = 0
            async with await numbers.tail(group="counting", until="end") as consumer:
                async for batch in consumer.batches():
                    rows += batch.num_rows
        return len({receipt.id for receipt in receipts}), rows

    assert asyncio.run(count()) == (9, 9)


def test_groups_are_consumed_moved_and_skipped_by_the_same_names(
    tmp_path: Path,
) -> None:
    class Order(msgspec.Struct):
        number: int

    async def consume() -> None:
        async with tailrace.aio.open(tmp_path / "hub", sync="none") as hub:
            orders = await hub.create_topic("orders", Order, partitions=1)
            await orders.push_many([("c1", Order(number)) for number in range(5)])
            async with await hub.tail("ord*", Order, group="billing", until="end") as consumer:
                assert [delivery.value.number async for delivery in consumer] == list(range(5))
            group = await hub.group("billing")
            assert await group.seek("orders/0.0@3") == {"orders/0.0": 3}
            assert await group.skip("orders/0.0@3", reason="bad")
            assert not await group.skip("orders/0.0@3", reason="bad")
            assert [stream.lag for stream in await group.lag()] == [1]
            assert [line.what for line in await group.history(2)] == ["seek", "skip"]
            assert (await group.describe()).partitions[0].mark == 4
            await group.delete()
            assert await hub.groups() == []

    asyncio.run(consume())


def test_subscriptions_are_created_worked_on_and_explained_by_the_same_names(
    tmp_path: Path,
) -> None:
    async def work() -> list[int]:
        done: list[int] = []
        finished = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def handle(delivery: tailrace.Delivery[int]) -> None:
            if delivery.value == 3:
                raise tailrace.Reject("unlucky")
            done.append(delivery.value)
            if len(done) == 4:
                loop.call_soon_threadsafe(finished.set)

        async with tailrace.aio.open(tmp_path / "hub", sync="none") as hub:
            numbers = await hub.create_topic("numbers", int, partitions=1)
            await numbers.push_many([(f"c{number}", number) for number in range(5)])
            crm = await hub.create_subscription("crm", topic="numbers")
            assert await hub.subscriptions() == [crm.name] == ["crm"]
            assert (await (await hub.subscription("crm")).describe()).topic == crm.topic
            running = asyncio.create_task(crm.run(handle, type=int))
            async with asyncio.timeout(DEADLINE_S):
                await finished.wait()
                while (await crm.explain("c3")).dlq != 1:
                    await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait([running])
            assert (await crm.message("numbers/0.0@0")).message is None
            assert (await crm.group_state("c3")).dlq is not None
            (letter,) = await crm.dead_letters.list()
            assert (letter.key, letter.error) == ("c3", "Reject: unlucky")
            assert (await crm.dead_letters.show(letter.id, type=int)).message.value == 3
            request = await crm.dead_letters.discard(key="c3", reason="unlucky")
            assert await crm.dead_letters.is_pending(request)
            assert await crm.pause("enough")
            async with await crm.start(handle) as worker:
                assert (worker.subscription, worker.stats().in_flight) == ("crm", 0)
                worker.stop()
                assert await worker.wait(DEADLINE_S)
            assert await crm.resume()
            await crm.update(filter="key == 'c1'")
            await crm.delete()
        return done

    assert sorted(asyncio.run(work())) == [0, 1, 2, 4]


def test_workers_that_run_leave_the_threads_of_the_loop_to_other_calls(tmp_path: Path) -> None:
    async def work() -> list[str]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        async with tailrace.aio.open(tmp_path / "hub", sync="none") as hub:
            await hub.create_topic("numbers", int, partitions=1)
            names = [f"s{number}" for number in range(4)]
            subscriptions = [await hub.create_subscription(name, topic="numbers") for name in names]
            running = [asyncio.create_task(each.run(_pass)) for each in subscriptions]
            async with asyncio.timeout(DEADLINE_S):
                for each in subscriptions:
                    while not (await each.describe()).workers:
                        await asyncio.sleep(0.01)
                for task in running:
                    task.cancel()
                await asyncio.wait(running)
            assert all(task.cancelled() for task in running)
            return await hub.subscriptions()

    assert asyncio.run(work()) == ["s0", "s1", "s2", "s3"]


def test_a_worker_is_waited_for_again_and_by_several_and_raises_what_ended_it(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with tailrace.aio.open(tmp_path / "hub", sync="none") as hub:
            await hub.create_topic("numbers", int, partitions=1)
            crm = await hub.create_subscription("crm", topic="numbers")
            async with await crm.start(_pass) as worker, asyncio.timeout(DEADLINE_S):
                for _ in range(5):
                    assert not await worker.wait(0.01)
                names = [thread.name for thread in threading.enumerate()]
                assert names.count("tailrace crm wait") == 1
                waiting = [asyncio.create_task(worker.wait()) for _ in range(2)]
                await crm.delete()
                for task in waiting:
                    with pytest.raises(tailrace.UnknownSubscription):
                        await task
            assert not await worker.close()

    asyncio.run(work())


def _pass(delivery: tailrace.Delivery[int]) -> None:
    """Handle everything."""


@pytest.mark.parametrize("delay_ms", [0, 1, 5])
def test_a_hub_whose_opening_is_cancelled_is_closed(tmp_path: Path, delay_ms: int) -> None:
    async def cancel() -> None:
        opening = asyncio.ensure_future(_open(tmp_path / "hub"))
        await asyncio.sleep(delay_ms / 1000)
        opening.cancel()
        await asyncio.wait([opening])

    asyncio.run(cancel())
    assert [each for each in _open_files() if each.startswith(str(tmp_path))] == []


async def _open(directory: Path) -> None:
    async with tailrace.aio.open(directory, sync="none"):
        await asyncio.sleep(60)


def _open_files() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # that of the listing
            continue
    return found


def test_queues_are_pushed_to_consumed_and_paused_by_the_same_names(tmp_path: Path) -> None:
    async def work() -> None:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def handle(job: tailrace.Delivery[int]) -> None:
            if job.value == 3:
                loop.call_soon_threadsafe(done.set)
                raise tailrace.Reject("three")

        async with tailrace.aio.open(tmp_path / "hub", sync="none") as hub:
            jobs: tailrace.aio.Queue[int] = await hub.queue("jobs", int, shards=2)
            with pytest.raises(tailrace.UnknownQueue):
                await hub.queue("job", strict=True)
            await jobs.push(1, key="c7")
            await jobs.push_many([("c7", 2), ("c7", 3)])
            assert await jobs.pause("a test", drain=True)
            assert await jobs.play()
            async with await jobs.tail(handle, id="a", concurrency=2) as consumer:
                assert (consumer.guarantee, consumer.is_acking) == ("at-least-once", True)
                await asyncio.wait_for(done.wait(), DEADLINE_S)
                assert (await jobs.rebalance(timeout="30s")).balanced
                assert consumer.stats().shards
            assert consumer.batch_size == 1
            assert len(await jobs.dead_letters.list()) == 1
            total = (await jobs.stats()).total
            assert (total.acked, total.dead) == (2, 1)
            assert await hub.queues() == ["jobs"]
            await hub.delete_queue("jobs")
            assert "jobs" not in await hub.topics()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("of_threads", "awaited"),
    [
        (tailrace.Queue, tailrace.aio.Queue),
        (tailrace.QueueConsumer, tailrace.aio.QueueConsumer),
        (tailrace.Replay, tailrace.aio.Replay),
        (tailrace.DeadLetters, tailrace.aio.DeadLetters),
    ],
)
def test_queues_have_the_same_calls(of_threads: type, awaited: type) -> None:
    unlike = {"topic", "subscription", "job"}  # objects of their own
    calls = {name for name in dir(of_threads) if not name.startswith("_")}
    assert calls - unlike <= set(dir(awaited))


def test_a_replay_is_started_awaited_resumed_and_listed(tmp_path: Path) -> None:
    async def work() -> None:
        replayed: list[int] = []

        async def handle(job: tailrace.Delivery[int]) -> None:
            replayed.append(job.value)

        async with tailrace.aio.open(tmp_path / "hub", sync="none") as hub:
            jobs: tailrace.aio.Queue[int] = await hub.queue("jobs", int, shards=1)
            await jobs.push_many([("c7", number) for number in range(5)])
            await jobs.pause("a test")
            async with await jobs.replay(0, handler=handle, id="again") as replay:
                assert await replay.wait("30s")
            assert replayed == [0, 1, 2, 3, 4]
            assert (await replay.progress()).state is tailrace.ReplayState.DONE
            assert [each.id for each in await jobs.replays()] == ["again"]
            found = await jobs.find_replay("again")
            assert (found.queue, await found.cancel()) == ("jobs", False)
            async with await jobs.resume_replay("again", handle) as resumed:
                assert await resumed.wait()

    asyncio.run(work())
