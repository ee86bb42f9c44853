"""A message is found by its position, in whatever queue it is."""

from __future__ import annotations

import pytest

from tailrace.delivery.outcome import SUCCESS
from tailrace.errors import InvalidValue, OutOfRange
from tailrace.message import Position
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.message_state import MessagePlace, read_message_place
from tests.support.shards import REJECTED, Shop, fails, stored


def place_of(shop: Shop, position: str) -> MessagePlace:
    return read_message_place(shop.backend, stored(shop.backend), Position.parse(position))


def test_a_message_is_in_mq_until_it_is_acknowledged() -> None:
    shop = Shop()
    shop.push("c7", 1, 2)
    shop.push("other", 3)
    place = place_of(shop, "orders/0.0@1")
    assert (place.key, place.shard, place.ahead) == ("c7", 0, 1)
    assert place.message is not None
    assert (place.message.queue, place.message.origin) == (Queue.MQ, "orders/0.0@1")
    assert place_of(shop, "orders/0.0@2").ahead == 0
    shop.owner().run()
    done = place_of(shop, "orders/0.0@1")
    assert (done.message, done.key) == (None, "c7")


def test_a_message_is_followed_into_rq_and_dlq() -> None:
    shop = Shop(attempts=None)
    shop.push("c7", 1, 2)
    shop.push("bad", 3, 4)
    shop.owner().run(
        lambda value: REJECTED if value == 3 else fails(1)(value) if value == 1 else SUCCESS
    )
    retried = place_of(shop, "orders/0.0@0").message
    assert retried is not None
    assert (retried.queue, retried.attempts, retried.error) == (
        Queue.RQ,
        1,
        "ValueError: no stock",
    )
    assert place_of(shop, "orders/0.0@1").ahead == 1
    follower = place_of(shop, "orders/0.0@3")
    assert follower.message is not None
    assert (follower.message.queue, follower.ahead) == (Queue.DLQ, 1)
    assert follower.message.error == "an earlier message of its key failed"
    assert place_of(shop, follower.message.position) == follower


def test_a_message_without_a_key_is_found_in_any_partition_of_its_shard() -> None:
    shop = Shop(partitions=4, shards=1)
    shop.push(None, 1, 2, 3)
    positions = [
        f"orders/0.{number}@{offset}"
        for number, end in enumerate(shop.topic.storage_topics[0].ends)
        for offset in range(end)
    ]
    assert {place_of(shop, each).message is not None for each in positions} == {True}
    shop.owner().run(lambda value: REJECTED if value == 2 else SUCCESS)
    places = [place_of(shop, each) for each in positions]
    (dead,) = [each.message for each in places if each.message is not None]
    assert dead.queue is Queue.DLQ
    assert {(each.key, each.ahead) for each in places} == {(None, 0)}


def test_a_message_in_a_closed_storage_topic_waits_there() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.topic.scale(6)
    shop.push("c7", 1)
    place = place_of(shop, f"orders/1.{shop.topic.route('c7')}@0")
    assert place.closed
    assert place.message is not None
    assert place.message.queue is Queue.MQ


def test_positions_of_other_topics_and_without_a_record_are_refused() -> None:
    shop = Shop()
    with pytest.raises(InvalidValue, match="a position in orders, tailrace"):
        place_of(shop, "refunds/0.0@1")
    with pytest.raises(OutOfRange):
        place_of(shop, "orders/0.0@1")
    with pytest.raises(InvalidValue, match="0 to 0"):
        place_of(shop, "orders/0.7@1")
