"""Scaling topics: plans, switches, and producers with a stale definition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import (
    Busy,
    InvalidValue,
    Sealed,
    UnknownTopic,
)
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tests.support.faulty_backend import FaultyBackend, once
from tests.support.topics import Order, all_values


def test_storage_topics_show_shape_seal_and_ends(orders: Topic[Order]) -> None:
    orders.push(Order(1), key="c7")
    orders.scale(12)
    first, second = orders.storage_topics
    assert (first.index, first.partitions, first.k, first.base, first.sealed) == (0, 4, 1, 4, True)
    assert (second.index, second.partitions, second.k, second.base) == (1, 12, 3, 4)
    assert not second.sealed
    assert sum(end > 0 for end in first.ends) == 1


def test_route_of_no_key_is_refused(orders: Topic[Order]) -> None:
    with pytest.raises(InvalidValue, match="key"):
        orders.route("")


def test_follows_accepts_text_and_refuses_other_topics(orders: Topic[Order]) -> None:
    orders.scale(12)
    assert orders.follows("orders/1.7") == {Partition("orders", 0, 2)}
    assert orders.follows(Partition("orders", 0, 2)) == set()
    with pytest.raises(InvalidValue, match="topic 'orders'"):
        orders.follows("others/1.7")


def test_consistent_answers_for_two_storage_topics(hub: Hub) -> None:
    topic = hub.create_topic("t", partitions=8)
    topic.scale(12)
    topic.scale(24)
    assert topic.consistent(shards=1, from_storage=0, to_storage=1)
    assert not topic.consistent(shards=4, from_storage=0, to_storage=1)
    assert topic.consistent(shards=4, from_storage=1, to_storage=2)
    with pytest.raises(InvalidValue, match="0 to 2"):
        topic.consistent(shards=1, from_storage=0, to_storage=3)


def test_adding_moves_nothing_and_switching_seals(orders: Topic[Order]) -> None:
    assert orders.add_storage_topic(8) == 1
    assert orders.produce_pointer == 0
    assert orders.push(Order(1), key="a").storage == 0
    assert orders.switch_produce() == 1
    assert orders.push(Order(2), key="a").storage == 1
    assert [info.sealed for info in orders.storage_topics] == [True, False]


def test_switching_at_the_last_storage_topic_seals_nothing(orders: Topic[Order]) -> None:
    assert orders.switch_produce() == 0
    assert orders.push(Order(1)).storage == 0
    assert not orders.storage_topics[0].sealed


def test_a_plan_describes_a_scaling_and_changes_nothing(orders: Topic[Order]) -> None:
    orders.push(Order(1))
    plan = orders.plan_scale(12)
    assert str(plan).splitlines()[0] == (
        "orders 4 -> 12 partitions: partition p is followed by 3p, 3p+1, 3p+2"
    )
    assert (plan.storage, plan.shards) == (1, (1, 2, 4))
    assert plan.waiting >= 1
    assert len(orders.storage_topics) == 1


def test_a_plan_for_another_base_says_that_keys_move(orders: Topic[Order]) -> None:
    text = str(orders.plan_scale(6))
    assert "orders 4 -> 6 partitions: each partition follows 2 earlier ones" in text
    assert "no key changes its shard" not in text


def test_a_plan_for_the_range_router_counts_the_partitions_before(hub: Hub) -> None:
    topic = hub.create_topic("t", router="range")
    assert "t 4 -> 6 partitions: each partition follows 1 to 2" in str(topic.plan_scale(6))


def test_scaling_to_the_present_count_does_nothing(orders: Topic[Order]) -> None:
    assert "nothing to do" in str(orders.scale(4))
    assert len(orders.storage_topics) == 1


@pytest.mark.parametrize("partitions", [0, -1, 5, 10**9])
def test_scaling_to_a_count_out_of_range_changes_nothing(
    orders: Topic[Order], partitions: int
) -> None:
    for change in (orders.scale, orders.plan_scale, orders.add_storage_topic):
        with pytest.raises(InvalidValue, match="partitions"):
            change(partitions)
    assert len(orders.storage_topics) == 1


def test_scaling_skips_storage_topics_that_were_never_switched_to(orders: Topic[Order]) -> None:
    orders.add_storage_topic(8)
    assert "storage 1 was never switched to and stays empty" in str(orders.plan_scale(12))
    orders.scale(12)
    assert orders.push(Order(1)).storage == 2
    assert [info.sealed for info in orders.storage_topics] == [True, True, False]


class ChangedMeanwhile(MemoryBackend):
    """Somebody else changes the topic just before each of the first few changes is committed."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], object]] = []
        commit = self.store.commit

        def commit_late(change: Any) -> int:
            if self.meanwhile:
                self.meanwhile.pop()()
            return commit(change)

        self.store.commit = commit_late  # type: ignore[method-assign]


def test_two_concurrent_switches_are_one() -> None:
    backend = ChangedMeanwhile()
    hub = Hub.from_backend(backend)
    topic = hub.create_topic("t")
    topic.add_storage_topic(8)
    topic.add_storage_topic(12)
    backend.meanwhile = [hub.topic("t").switch_produce]
    assert topic.switch_produce() == 1
    assert topic.produce_pointer == 1


def test_a_switch_continues_after_a_concurrent_addition(orders: Topic[Order]) -> None:
    backend = ChangedMeanwhile()
    topic = Hub.from_backend(backend).create_topic("t")
    topic.add_storage_topic(8)
    backend.meanwhile = [lambda: topic.add_storage_topic(12)]
    assert topic.switch_produce() == 1
    assert len(topic.storage_topics) == 3


def test_two_concurrent_additions_are_two() -> None:
    backend = ChangedMeanwhile()
    topic = Hub.from_backend(backend).create_topic("t")
    backend.meanwhile = [lambda: topic.add_storage_topic(12)]
    assert topic.add_storage_topic(8) == 2


def test_scaling_during_another_scaling_is_busy_and_changes_nothing() -> None:
    backend = ChangedMeanwhile()
    hub = Hub.from_backend(backend)
    topic = hub.create_topic("t")
    backend.meanwhile = [lambda: hub.topic("t").scale(8)]
    with pytest.raises(Busy):
        topic.scale(12)
    assert [info.partitions for info in topic.storage_topics] == [4, 8]


def test_every_kind_of_push_follows_a_pointer_that_moved(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes)
    other = hub.topic("t")
    other.scale(12)
    assert topic.push(b"a", key="k").storage == 1
    other.scale(8)
    assert {receipt.storage for receipt in topic.push_many([("k", b"b")] * 3)} == {2}
    other.scale(4)
    other.scale(12)
    batch = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"c"]})
    assert {landed.partition.storage for landed in topic.append(batch)} == {4}
    other.scale(1)
    assert topic.push(b"d", key="k", dedup_id="x").storage == 5
    assert all_values(topic) == [b"a", b"b", b"b", b"b", b"c", b"d"]


def test_a_switch_between_routing_and_commit_is_followed(
    backend: FaultyBackend, hub: Hub, orders: Topic[Order]
) -> None:
    backend.before = once(lambda: void(hub.topic("orders").scale(12)))
    receipts = orders.push_many([(f"k{i}", Order(i)) for i in range(300)])
    assert {receipt.storage for receipt in receipts} == {1}
    assert [orders.read(*receipt[1:4]).value.id for receipt in receipts] == list(range(300))


def test_a_storage_topic_sealed_without_a_next_is_an_error(
    backend: FaultyBackend, orders: Topic[Order]
) -> None:
    def sealed() -> None:
        raise Sealed("orders", 0)

    backend.before = once(sealed)
    with pytest.raises(Sealed):
        orders.push(Order(1))


def test_a_push_gives_up_on_a_topic_that_is_switched_endlessly(
    backend: FaultyBackend, hub: Hub, orders: Topic[Order]
) -> None:
    other = hub.topic("orders")
    backend.before = lambda _: void(other.scale(12 if other.view.target.storage % 2 else 8))
    with pytest.raises(Busy, match="switched 100 times"):
        orders.push(Order(1))


def test_order_per_key_holds_over_scaling_by_a_stale_producer(hub: Hub) -> None:
    topic = hub.create_topic("t")
    other = hub.topic("t")
    pushed = defaultdict(list)
    for i in range(600):
        if i % 100 == 99:
            other.scale([12, 8, 6, 1, 4][i // 100 % 5])
        key = f"k{i % 13}"
        (topic if i % 2 else other).push({"key": key, "i": i}, key=key)
        pushed[key].append(i)
    read = defaultdict(list)
    for value in all_values(topic):
        read[value["key"]].append(value["i"])
    assert read == pushed


def test_a_push_to_a_deleted_topic_is_an_unknown_topic(hub: Hub, orders: Topic[Order]) -> None:
    hub.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        orders.push(Order(1))


def void(_: object) -> None:
    """Throw a result away."""
