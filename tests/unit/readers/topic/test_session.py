"""Partitions as splits: their lineage, their ends, and what happens when the topic is gone."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Change, StorageTopic
from tailrace.errors import Error, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.readers.topic.session import TopicReaderSession
from tailrace.source.reader import Batch, Split, Until
from tailrace.source.split_state import read_splits
from tests.support.faulty_backend import FaultyBackend, once, unknown
from tests.support.topics import all_messages, all_values
from tests.unit.readers.topic.read_topics import (
    LastingBackend,
    MemoryTopicReader,
    TopicSource,
    store_all,
    values_by_key,
)

ORDERS = [(f"k{number % 8}", {"n": number}) for number in range(40)]


def opened(shop: Hub, until: Until = Until.STOPPED) -> TopicReaderSession:
    return MemoryTopicReader(shop).open(until)


def batches_of(session: TopicReaderSession, split: Split) -> list[Batch]:
    """Return the batches that a split has now."""
    found = []
    for batch in session.read(split, None, None, {}):
        if batch is None:
            break
        found.append(batch)
    return found


def finished(session: TopicReaderSession, split: Split) -> Batch:
    """Return the last batch of a split that ends."""
    *_, last = batches_of(session, split)
    assert last.finished
    return last


def remove_all_but_the_last_push(topic: Topic[Any]) -> int:
    """Remove records of a topic with one partition, and return its new start."""
    log: Any = topic.view.backend.log
    [end] = topic.storage_topics[0].ends
    log.remove_before(Partition(topic.name, 0, 0), end - 1)
    [start] = topic.storage_topics[0].starts
    return start


def test_the_first_splits_are_the_partitions_of_the_oldest_storage_topic(
    shop: Hub, orders: Topic[Any]
) -> None:
    orders.scale(4)
    orders.scale(12)
    splits = opened(shop).splits()
    assert [split.id for split in splits] == ["orders/0.0", "orders/0.1"]
    assert not any(split.follows or split.bound for split in splits)


def test_partitions_of_a_storage_topic_that_no_longer_exists_are_left_out(
    shop: Hub, orders: Topic[Any]
) -> None:
    orders.scale(4)
    shop.backend.store.commit(Change(delete=(StorageTopic("orders", 0, 2),)))
    assert [split.id for split in opened(shop).splits()] == [
        f"orders/1.{number}" for number in range(4)
    ]


@pytest.mark.parametrize("router", ["shard-consistent", "range"])
@pytest.mark.parametrize(("before", "after"), [(2, 6), (6, 2), (4, 6), (12, 8), (3, 3)])
def test_parents_report_every_partition_that_follows_them_with_all_that_it_follows(
    before: int, after: int, router: str, shop: Hub
) -> None:
    topic = shop.create_topic("orders", partitions=before, router=router)
    topic.add_storage_topic(after)
    topic.switch_produce()
    session = opened(shop)
    reports: dict[str, dict[str, Split]] = {}
    for parent in session.splits():
        for child in finished(session, parent).children:
            reports.setdefault(child.id, {})[parent.id] = child
    assert reports.keys() == {f"orders/1.{number}" for number in range(after)}
    for child_id, by_parent in reports.items():
        expected = {str(each) for each in topic.follows(child_id)}
        assert by_parent.keys() == expected
        assert all(set(child.follows) == expected for child in by_parent.values())


def test_a_partition_that_takes_pushes_has_no_end(shop: Hub, orders: Topic[Any]) -> None:
    orders.push_many(ORDERS)
    session = opened(shop)
    [first, _] = session.splits()
    reading = session.read(first, None, None, {})
    batch = next(reading)
    assert batch is not None
    assert not batch.finished
    assert [next(reading), next(reading)] == [None, None]
    orders.push_many(ORDERS)
    orders.scale(4)
    last = next(reading)
    assert last is not None
    assert last.finished
    assert last.position > batch.position
    assert next(reading, "ended") == "ended"


def test_an_empty_partition_that_is_sealed_is_finished(shop: Hub, orders: Topic[Any]) -> None:
    orders.scale(4)
    session = opened(shop)
    [first, _] = session.splits()
    assert finished(session, first).records is None


def test_a_sealed_partition_waits_until_its_successors_are_visible(shop: Hub) -> None:
    orders = shop.create_topic("orders", partitions=1)
    orders.push({"n": 1})
    session = opened(shop)
    [split] = session.splits()
    shop.backend.store.commit(Change(seal=(StorageTopic("orders", 0, 1),)))
    reading = session.read(split, None, None, {})
    batch = next(reading)
    assert batch is not None
    assert not batch.finished
    assert next(reading) is None
    orders.scale(3)
    last = next(reading)
    assert last is not None
    assert [child.id for child in last.children] == [f"orders/1.{number}" for number in range(3)]


def test_a_storage_topic_that_is_not_switched_to_yet_is_no_successor(
    shop: Hub, orders: Topic[Any]
) -> None:
    orders.push_many(ORDERS)
    orders.add_storage_topic(4)
    source = TopicSource(MemoryTopicReader(shop))
    source.finish()
    assert read_splits(source.hub.backend, "s").states.keys() == {"orders/0.0", "orders/0.1"}


def test_a_run_until_now_ends_at_the_ends_of_its_start(shop: Hub, orders: Topic[Any]) -> None:
    orders.push_many(ORDERS)
    orders.scale(4)
    orders.push_many(ORDERS)
    source = TopicSource(MemoryTopicReader(shop))
    with source.begin() as run:
        orders.push_many(ORDERS)
        orders.scale(12)
        orders.push_many(ORDERS)
        while not run.done:
            run.step()
    assert len(all_messages(source.log)) == 2 * len(ORDERS)
    source.finish()
    assert values_by_key(source.log, "source.key") == values_by_key(orders)


def test_a_partition_that_is_created_during_a_run_until_now_is_left_to_the_next(
    shop: Hub, orders: Topic[Any]
) -> None:
    session = opened(shop, Until.NOW)
    orders.scale(4)
    orders.push_many(ORDERS)
    assert list(session.read(Split("orders/1.0"), None, None, {})) == []


def test_a_run_without_end_follows_the_topic_and_its_scalings(
    shop: Hub, orders: Topic[Any]
) -> None:
    source = TopicSource(MemoryTopicReader(shop))
    with source.begin(Until.STOPPED) as run:
        for partitions in (4, 12, 8, 3):
            orders.push_many(ORDERS)
            store_all(run)
            assert len(all_messages(source.log)) == len(all_messages(orders))
            orders.scale(partitions)
        assert not run.done
    assert values_by_key(source.log, "source.key") == values_by_key(orders)


def test_a_large_partition_is_read_in_batches_of_about_a_mebibyte(
    shop: Hub, orders: Topic[Any]
) -> None:
    for number in range(6):
        orders.push({"n": number, "x": "y" * 400_000}, key="k")
    session = opened(shop)
    found = [batches_of(session, split) for split in session.splits()]
    sizes = [len(batch.records or ()) for batches in found for batch in batches]
    assert sizes == [2, 2, 2]


def test_a_topic_that_was_deleted_is_named(shop: Hub, orders: Topic[Any]) -> None:
    source = TopicSource(MemoryTopicReader(shop))
    orders.push_many(ORDERS)
    with source.begin(Until.STOPPED) as run:
        store_all(run)
        shop.delete_topic("orders")
        with pytest.raises(
            Error, match="topic 'orders' of the hub shop was deleted while"
        ) as found:
            store_all(run)
    assert not isinstance(found.value, UnknownTopic)


@pytest.mark.parametrize("count", [0, 10, 400])
def test_a_topic_that_was_deleted_and_created_again_is_not_read(
    count: int, shop: Hub, orders: Topic[Any]
) -> None:
    source = TopicSource(MemoryTopicReader(shop))
    orders.push_many(ORDERS)
    source.finish()
    shop.delete_topic("orders")
    again = shop.create_topic("orders", partitions=2)
    again.push_many([(f"k{number % 8}", number) for number in range(count)])
    if count:
        with pytest.raises(Error, match="deleted and created again"):
            source.finish()
    assert len(all_messages(source.log)) == len(ORDERS)


def test_records_that_were_removed_before_they_were_read_are_an_error(shop: Hub) -> None:
    orders = shop.create_topic("orders", partitions=1)
    source = TopicSource(MemoryTopicReader(shop))
    orders.push_many(ORDERS)
    source.finish()
    orders.push_many(ORDERS)
    orders.push_many(ORDERS)
    start = remove_all_but_the_last_push(orders)
    with pytest.raises(Error, match=rf"orders/0\.0 .* begins at offset {start}: the records"):
        source.finish()


def test_reading_starts_at_the_oldest_record_that_exists(shop: Hub) -> None:
    orders = shop.create_topic("orders", partitions=1)
    orders.push_many(ORDERS)
    orders.push({"n": "last"})
    assert remove_all_but_the_last_push(orders) > 0
    source = TopicSource(MemoryTopicReader(shop))
    source.finish()
    assert all_values(source.log) == [{"n": "last"}]


def test_a_topic_that_ends_before_the_stored_position_is_an_error(shop: Hub) -> None:
    orders = shop.create_topic("orders", partitions=1)
    orders.push_many(ORDERS)
    session = opened(shop)
    [split] = session.splits()
    with pytest.raises(Error, match=r"was read up to offset 1000 before: the hub was restored"):
        next(session.read(split, 1000, None, {}))


def test_a_mirror_continues_after_a_commit_of_unknown_outcome(
    shop: Hub, orders: Topic[Any]
) -> None:
    backend = FaultyBackend()
    source = TopicSource(MemoryTopicReader(shop, into="copy"), backend=backend)
    copy = source.hub.create_topic("copy", partitions=3)
    orders.push_many(ORDERS)
    backend.after = once(unknown)
    source.finish()
    assert values_by_key(copy) == values_by_key(orders)


def test_a_partition_that_was_read_to_its_end_and_deleted_is_finished(
    shop: Hub, orders: Topic[Any]
) -> None:
    orders.push_many(ORDERS)
    session = opened(shop)
    [first, _] = session.splits()
    reading = session.read(first, None, None, {})
    while next(reading) is not None:
        pass
    orders.scale(4)
    orders.trim(1, force=True)
    last = next(reading)
    assert last is not None
    assert last.finished
    assert {child.id for child in last.children} == {"orders/1.0", "orders/1.1"}


def test_a_partition_that_was_deleted_before_it_was_read_is_an_error(
    shop: Hub, orders: Topic[Any]
) -> None:
    orders.push_many(ORDERS)
    session = opened(shop)
    [first, _] = session.splits()
    orders.scale(4)
    orders.trim(1, force=True)
    with pytest.raises(Error, match="were removed before they were read"):
        batches_of(session, first)


def test_runs_until_now_continue_after_a_partition_that_was_read_and_deleted_between_them() -> None:
    shop = Hub.from_backend(LastingBackend("shop"))
    orders = shop.create_topic("orders", partitions=2)
    source = TopicSource(MemoryTopicReader(shop))
    orders.push_many(ORDERS[:20])
    source.finish()
    orders.scale(4)
    orders.push_many(ORDERS[20:])
    orders.trim(1, force=True)
    assert source.finish().rows == 20
    assert sorted(value["n"] for value in all_values(source.log)) == list(range(40))


def test_a_partition_that_was_deleted_before_it_was_read_is_an_error_until_now_too(
    shop: Hub, orders: Topic[Any]
) -> None:
    source = TopicSource(MemoryTopicReader(shop))
    orders.push_many(ORDERS[:20])
    source.finish()
    orders.push_many(ORDERS[20:])
    orders.scale(4)
    orders.trim(1, force=True)
    with pytest.raises(Error, match="were removed before they were read"):
        source.finish()


def test_a_successor_that_was_deleted_before_it_was_read_is_an_error(
    shop: Hub, orders: Topic[Any]
) -> None:
    session = opened(shop)
    [first, _] = session.splits()
    orders.scale(4)
    orders.push_many(ORDERS)
    orders.scale(2)
    orders.trim(2, force=True)
    with pytest.raises(Error, match="storage 1 of topic 'orders' was deleted before it was read"):
        batches_of(session, first)


def test_a_batch_has_the_number_of_messages_that_come_after_it(
    shop: Hub, orders: Topic[Any]
) -> None:
    for _ in range(4):
        orders.push({"text": "x" * 700_000}, key="c7")
    session = opened(shop)
    where = next(each for each in session.splits() if shop.backend.log.bounds(_of(each)).end)
    assert [batch.lag for batch in batches_of(session, where)] in ([3, 2, 1, 0], [2, 0])


def _of(split: Split) -> Partition:
    return Partition.parse(split.id)
