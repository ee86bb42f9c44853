"""`tailrace.aio`: the parts that are more than a call in a thread."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

import tailrace.aio


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
