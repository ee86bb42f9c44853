"""Topics of which the oldest storage topics were deleted, on every backend."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.clock import SystemClock
from tailrace.errors import InvalidValue, NotRetained, OutOfRange, StorageDeleted, UnknownTopic
from tailrace.group.store.end_offsets import end_offsets
from tailrace.group.store.lifecycle import open_group
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.operations import explain, hub_info, status
from tailrace.operations.topic import changes, describe, tail
from tailrace.topic.offset_spec import parse_offset_spec
from tailrace.topic.time_range import offsets_between
from tests.support.topics import all_values, push
from tests.support.waiting import until
from tests.support.workers import SOON, Calls


@pytest.fixture
def hub(backend: Backend) -> Hub:
    return Hub.from_backend(backend)


@pytest.fixture
def orders(hub: Hub) -> Topic[Any]:
    """A topic with storage topics of 2, 4 and 3 partitions, and 10 messages in each."""
    topic: Topic[Any] = hub.create_topic("orders", partitions=2)
    push(topic, 10)
    for number, partitions in enumerate((4, 3), 1):
        topic.scale(partitions)
        push(topic, 10, first=10 * number)
    return topic


def drain(topic: Topic[Any], group: str = "billing") -> list[Any]:
    with topic.tail(group=group, until="end") as consumer:
        return [delivery.value for delivery in consumer]


def test_storage_topics_that_every_group_has_finished_are_deleted(orders: Topic[Any]) -> None:
    drain(orders)
    done = orders.trim(2)
    assert (done.storages, done.amount.records, done.finished) == ((0, 1), 20, True)
    assert [each.index for each in orders.storage_topics] == [2]
    assert orders.view.definition.deleted.keys() == {0, 1}
    for storage, partitions in ((0, 2), (1, 4)):
        for number in range(partitions):
            with pytest.raises(UnknownTopic):
                orders.view.backend.log.bounds(Partition("orders", storage, number))


def test_the_storage_topic_that_takes_pushes_stays(orders: Topic[Any]) -> None:
    drain(orders)
    for before in (3, -1, "1"):
        with pytest.raises(InvalidValue, match="0 to 2, the storage topic that takes pushes"):
            orders.trim(before)  # type: ignore[arg-type]
    assert orders.trim(0).storages == ()
    assert orders.trim(1).storages == (0,)
    assert orders.trim(1).storages == ()


def test_what_a_consumer_has_not_read_is_deleted_only_by_force(orders: Topic[Any]) -> None:
    with pytest.raises(InvalidValue, match=r"the topic has no consumer, .* the 10 messages"):
        orders.trim(1)
    with orders.tail(group="billing", limit=3) as consumer:
        assert len(list(consumer)) == 3
    with pytest.raises(InvalidValue, match="billing has 7 messages unread"):
        orders.trim(1)
    assert len(orders.storage_topics) == 3
    assert orders.trim(1, force=True).amount.records == 10
    assert len(orders.storage_topics) == 2
    assert sorted(drain(orders)) == list(range(10, 30))


def test_reading_names_what_is_left(orders: Topic[Any]) -> None:
    orders.trim(1, force=True)
    for read in (lambda: orders.read(0, 1, 3), lambda: orders.batches(0, 1, 3)):
        with pytest.raises(OutOfRange, match=r"no record at orders/0.1@3: storage 0") as caught:
            read()
        assert isinstance(caught.value, StorageDeleted)
        assert caught.value.storages == (1, 2)
        assert "existing storage topics: 1, 2" in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert sorted(all_values(orders)) == list(range(10, 30))


def test_a_topic_that_was_opened_before_learns_of_the_deletion(
    hub: Hub, orders: Topic[Any]
) -> None:
    stale = Hub.from_backend(hub.backend).topic("orders")
    batches = stale.batches(0, 0)
    orders.trim(1, force=True)
    with pytest.raises(StorageDeleted):
        stale.read(0, 0, 0)
    with pytest.raises(StorageDeleted):
        list(batches)
    stale.push(30, key="k0")
    assert sorted(all_values(stale)) == list(range(10, 31))


def test_a_reader_continues_after_a_storage_topic_was_deleted_under_it(
    orders: Topic[Any],
) -> None:
    reader = orders.reader()
    first = [row for read in reader.poll() for row in orders.messages(*read)]
    assert {message.storage for message in first} == {0}
    orders.trim(2, force=True)
    rest = []
    while reads := reader.poll():
        rest += [message.value for read in reads for message in orders.messages(*read)]
    assert sorted(rest) == list(range(20, 30))


def test_the_successors_of_a_deleted_storage_topic_follow_nothing(orders: Topic[Any]) -> None:
    assert orders.follows("orders/1.0") == {Partition("orders", 0, 0)}
    orders.trim(1, force=True)
    assert orders.follows("orders/1.0") == set()
    assert orders.follows("orders/2.0") == {Partition("orders", 1, each) for each in range(4)}


def test_a_trimmed_topic_is_scaled_switched_and_deleted(hub: Hub, orders: Topic[Any]) -> None:
    drain(orders)
    orders.trim(2)
    assert orders.scale(12).storage == 3
    orders.add_storage_topic(8)
    assert orders.switch_produce() == 4
    push(orders, 10, first=30)
    assert sorted(drain(orders)) == list(range(30, 40))
    assert orders.trim(4).storages == (2, 3)
    assert hub.create_topic("orders", partitions=2, exist_ok=True).name == "orders"
    hub.delete_topic("orders")
    again = hub.create_topic("orders", partitions=1)
    assert [each.index for each in again.storage_topics] == [0]


def test_a_new_group_starts_at_the_oldest_storage_topic_left(orders: Topic[Any]) -> None:
    orders.trim(1, force=True)
    assert sorted(drain(orders, "new")) == list(range(10, 30))


def test_a_group_seeks_within_what_is_left(hub: Hub, orders: Topic[Any]) -> None:
    drain(orders)
    orders.trim(1)
    group = hub.group("billing")
    with pytest.raises(StorageDeleted):
        group.seek("orders/0.1@0")
    assert {Partition.parse(where).storage for where in group.seek("earliest")} == {1, 2}
    assert sorted(drain(orders)) == list(range(10, 30))
    group.seek("@2000-01-01")
    assert sorted(drain(orders)) == list(range(10, 30))
    assert {each.partition.split("/")[1][0] for each in group.describe().partitions} == {"1", "2"}
    assert {where.storage for where in end_offsets(hub.backend, ["orders"])} == {1, 2}


def test_a_group_that_lost_messages_to_force_has_finished_them(
    hub: Hub, orders: Topic[Any]
) -> None:
    open_group(hub.backend, "billing", "orders", "earliest", SystemClock())
    orders.trim(2, force=True)
    summary = hub.group("billing").describe().summary
    assert (summary.open, summary.waiting) == (3, 0)
    assert sorted(drain(orders)) == list(range(20, 30))


def test_a_consumer_at_work_continues_when_its_partitions_are_deleted(
    orders: Topic[Any],
) -> None:
    seen: list[int] = []
    with orders.tail(group="billing", until="end") as consumer:
        for delivery in consumer:
            if not seen:
                orders.trim(1, force=True)
            seen.append(delivery.value)
    assert set(range(10, 30)) <= set(seen)


def test_a_range_of_time_that_reaches_into_deleted_messages_is_refused(
    orders: Topic[Any],
) -> None:
    everything = 0, 1 << 45
    assert offsets_between(orders.view, *everything)
    orders.trim(1, force=True)
    with pytest.raises(NotRetained) as caught:
        offsets_between(orders.view, *everything)
    assert caught.value.retained is not None
    assert offsets_between(orders.view, caught.value.retained[0], 1 << 45)


def test_a_message_whose_dedup_id_is_in_a_deleted_storage_topic_is_not_pushed_again(
    hub: Hub,
) -> None:
    topic: Topic[Any] = hub.create_topic("notes", partitions=1)
    topic.push(1, key="k", dedup_id="a")
    topic.scale(2)
    topic.trim(1, force=True)
    with pytest.raises(StorageDeleted):
        topic.push(1, key="k", dedup_id="a")
    assert all_values(topic) == []


def test_operations_describe_what_is_left(hub: Hub, orders: Topic[Any]) -> None:
    drain(orders)
    changes.trim(hub, "orders", 1, force=False)
    detail = describe.show_topic(hub, "orders")
    assert ([each.index for each in detail.storage], detail.deleted) == ([1, 2], (0,))
    assert detail.messages == 20
    [summary] = [each for each in describe.list_topics(hub) if each.name == "orders"]
    assert summary.storage_topics == 2
    _, wanted = tail.open_range(hub, "orders", parse_offset_spec("-15"), None)
    assert {where.storage for where in wanted.starts} == {1, 2}
    for position in ("orders/0.0", "orders/0.0@1"):
        with pytest.raises(StorageDeleted):
            explain.explain(hub, position)
        with pytest.raises(StorageDeleted):
            tail.open_range(hub, "orders", parse_offset_spec("orders/0.0@1"), None)
    assert explain.explain(hub, "orders/1.0").headline
    assert explain.explain(hub, "orders").headline
    assert status.status(hub)
    assert hub_info.hub_info(hub)
    assert "loses" not in str(changes.plan_delete(hub, "orders"))
    changes.delete(hub, "orders")


def test_the_plan_names_what_is_lost(hub: Hub, orders: Topic[Any]) -> None:
    open_group(hub.backend, "billing", "orders", "earliest", SystemClock())
    text = str(changes.plan_trim(hub, "orders", 1, force=True))
    assert "orders: delete storage 0 with 10 messages" in text
    assert "group billing  loses 10 messages unread" in text
    assert not changes.plan_trim(hub, "orders", 0, force=False).changes


def test_a_subscription_continues_without_a_deleted_storage_topic(
    hub: Hub, orders: Topic[Any]
) -> None:
    mailer = hub.create_subscription("mailer", topic="orders", shards=1, retry=SOON)
    calls = Calls()
    calls.fails(3, times=1000)
    with mailer.start(calls):
        calls.wait_done(24)  # key k3 waits in the DLQ
        until(lambda: mailer.describe().backlog.dlq == 6)
    orders.trim(1)
    assert mailer.describe().backlog.mq == 0
    assert mailer.explain(key="k3").head is not None
    [first, *_] = mailer.dead_letters.list()
    assert (first.message.storage, first.message.value, first.attempts) == (0, 3, 3)
    calls.fails(3, times=0)
    with mailer.start(calls):
        mailer.dead_letters.redeliver(key="k3")
        calls.wait_done(30)
    assert [value for value in calls.done if value % 5 == 3] == [3, 8, 13, 18, 23, 28]
    assert [attempt for value, attempt in calls.calls if value == 3][-1] == 4


def test_a_worker_continues_when_a_storage_topic_is_deleted_under_it(
    hub: Hub, orders: Topic[Any]
) -> None:
    mailer = hub.create_subscription("mailer", topic="orders", shards=1, retry=SOON)
    calls = Calls()
    with mailer.start(calls, concurrency=1):
        calls.wait_done(1)
        orders.trim(2, force=True)
        until(lambda: set(range(20, 30)) <= set(calls.done))
        orders.push(30, key="k0")
        until(lambda: 30 in calls.done)


def test_shards_have_to_agree_over_the_storage_topics_that_are_left_alone(
    hub: Hub, orders: Topic[Any]
) -> None:
    with pytest.raises(InvalidValue):
        hub.create_subscription("mailer", topic="orders", shards=3)
    orders.trim(2, force=True)
    assert hub.create_subscription("mailer", topic="orders").describe().shards == 3


def test_the_counts_of_a_queue_add_up_after_a_deletion(hub: Hub) -> None:
    jobs = hub.queue("jobs", shards=2, retry=SOON)
    jobs.push_many([(f"k{n % 5}", n) for n in range(10)])
    calls = Calls()
    with jobs.tail(calls):
        calls.wait_done(10)
    before = jobs.stats()
    hub.topic("jobs").scale(4)
    hub.topic("jobs").trim(1)
    jobs.push(10, key="k0")
    after = jobs.stats()
    assert after.conserved
    assert after.total.acked == before.total.acked == 10
    assert after.total.ready == 1
    with pytest.raises(NotRetained):
        jobs.replay(0, 1 << 40)
