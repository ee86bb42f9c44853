"""Messages of a topic with an `order_by` have the key that is in them, whichever way they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tailrace.errors import InvalidValue, MessageTooLarge, TopicExists
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.schema import HEADERS
from tailrace.message import Mode, Op
from tailrace.settings import HubSettings
from tailrace.testing import MemoryBackend
from tests.support.topics import Order, all_messages, nothing_stored

Push = Callable[[Hub, Topic[Any], Any, str | None], object]
"""A way to push one value with a key."""


def _transaction(hub: Hub, topic: Topic[Any], value: Any, key: str | None) -> None:
    with hub.transaction() as transaction:
        transaction.push(topic, value, key=key)


def _producer(hub: Hub, topic: Topic[Any], value: Any, key: str | bytes | None) -> None:
    with topic.producer() as producer:
        producer.push(value, key=key)


def _append(hub: Hub, topic: Topic[Any], value: Any, key: str | None) -> None:
    columns = {"value": [msgspec.json.encode(value)], "key": pa.array([key], pa.string())}
    topic.append(pa.record_batch(columns))


WAYS: dict[str, Push] = {
    "push": lambda hub, topic, value, key: topic.push(value, key=key),
    "push with an id": lambda hub, topic, value, key: topic.push(value, key=key, dedup_id="1"),
    "push_many": lambda hub, topic, value, key: topic.push_many([(key, value)]),
    "producer": _producer,
    "bytes": lambda hub, topic, value, key: _producer(
        hub, topic, msgspec.json.encode(value), None if key is None else key.encode()
    ),
    "transaction": _transaction,
    "append": _append,
}


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def push(request: pytest.FixtureRequest) -> Push:
    way: Push = request.param
    return way


@pytest.fixture
def by_customer(hub: Hub) -> Topic[Any]:
    return hub.create_topic("orders", order_by="customer", partitions=4)


def test_the_stored_key_is_the_field_and_decides_the_partition(
    hub: Hub, by_customer: Topic[Any], push: Push
) -> None:
    push(hub, by_customer, {"id": 1, "customer": "c7"}, None)
    [message] = all_messages(by_customer)
    assert message.key == "c7"
    assert message.partition == by_customer.route("c7")


def test_the_same_key_may_be_given_and_another_one_is_refused(
    hub: Hub, by_customer: Topic[Any], push: Push
) -> None:
    push(hub, by_customer, {"customer": "c7"}, "c7")
    push(hub, by_customer, {"customer": "c7"}, "")
    with pytest.raises(InvalidValue, match="customer, which is 'c7', and the key is 'c8'"):
        push(hub, by_customer, {"customer": "c7"}, "c8")
    assert {message.key for message in all_messages(by_customer)} == {"c7"}


def test_a_value_without_the_field_is_refused_and_nothing_is_stored(
    hub: Hub, by_customer: Topic[Any], push: Push
) -> None:
    with pytest.raises(InvalidValue, match="ordered by customer: Object missing required field"):
        push(hub, by_customer, {"id": 1}, "c7")
    assert nothing_stored(by_customer)


def test_a_topic_by_a_header_takes_its_value(hub: Hub) -> None:
    topic = hub.create_topic("orders", bytes, order_by="header:country", partitions=4)
    assert topic.read(*topic.push(b"x", headers={"country": "IN"})[1:4]).key == "IN"
    with topic.producer() as producer:
        producer.push(b"x", headers={"country": b"IN"}, key=b"IN")
    headers = pa.array([[("country", b"IN")], [("country", b"US")]], HEADERS)
    topic.append(pa.record_batch({"value": [b"x", b"x"], "headers": headers}))
    assert sorted(str(m.key) for m in all_messages(topic)) == ["IN", "IN", "IN", "US"]
    with pytest.raises(InvalidValue, match="the header 'country' is missing"):
        topic.push(b"x", key="IN")
    with pytest.raises(InvalidValue, match=r"message 0 of 1: .*which push_many does not have"):
        topic.push_many([("IN", b"x")])


def test_typed_values_are_ordered_by_the_name_that_is_stored(hub: Hub) -> None:
    class Renamed(msgspec.Struct, rename="camel"):
        customer_id: int

    topic = hub.create_topic("orders", Renamed, order_by="customerId")
    assert topic.read(*topic.push(Renamed(7))[1:4]).key == "7"
    with pytest.raises(InvalidValue, match="Order has no field 'client'"):
        hub.create_topic("others", Order, order_by="client")
    assert hub.topics() == ["orders"]


def test_the_place_of_a_refused_message_among_many_is_named(by_customer: Topic[Any]) -> None:
    many = [(None, {"customer": f"c{n}"} if n != 7 else {}) for n in range(9)]
    with pytest.raises(InvalidValue, match="message 7 of 9: the topic is ordered by customer"):
        by_customer.push_many(many)
    batch = pa.record_batch({"value": [msgspec.json.encode(value) for _, value in many]})
    with pytest.raises(InvalidValue, match="row 7: the topic is ordered by customer"):
        by_customer.append(batch)
    assert nothing_stored(by_customer)


def test_control_records_and_deletions_without_a_value_keep_their_key(
    by_customer: Topic[Any],
) -> None:
    columns = {
        "value": [b"", b"", b'{"customer":"c8"}'],
        "key": ["c7", None, None],
        "op": pa.array([Op.DELETE, Op.NOOP, Op.DELETE], pa.int8()),
        "mode": pa.array([Mode.SYNC] * 3, pa.int8()),
    }
    by_customer.append(pa.record_batch(columns))
    found = all_messages(by_customer, control=True)
    assert {(m.op, m.key) for m in found} == {
        (Op.DELETE, "c7"),
        (Op.NOOP, None),
        (Op.DELETE, "c8"),
    }
    with pytest.raises(InvalidValue, match="row 0: the topic is ordered by customer"):
        by_customer.append(
            pa.record_batch({"value": [b""], "op": pa.array([Op.DELETE], pa.int8())})
        )


def test_a_field_that_is_too_long_for_a_key_is_refused() -> None:
    hub = Hub.from_backend(MemoryBackend(), settings=HubSettings(key_bytes_max=10))
    topic = hub.create_topic("orders", order_by="customer")
    long: dict[str, str] = {"customer": "c" * 11}
    for push in WAYS.values():
        with pytest.raises(MessageTooLarge, match="a key has 11 bytes"):
            push(hub, topic, long, None)
    assert nothing_stored(topic)


def test_another_process_orders_by_the_same(hub: Hub, by_customer: Topic[Any]) -> None:
    again = Hub.from_backend(hub.backend).topic("orders", any_type=True)
    assert again.read(*again.push({"customer": "c7"})[1:4]).key == "c7"


def test_an_existing_topic_is_the_same_only_with_the_same_order(hub: Hub) -> None:
    hub.create_topic("orders", order_by="customer.id")
    hub.create_topic("orders", order_by="customer.id", exist_ok=True)
    for other, text in ((None, "key"), ("header:id", "header:id")):
        with pytest.raises(TopicExists, match=f"ordered by customer.id, not by {text}"):
            hub.create_topic("orders", order_by=other, exist_ok=True)


def test_scaling_keeps_the_order(by_customer: Topic[Any]) -> None:
    by_customer.scale(12)
    receipt = by_customer.push({"customer": "c7"})
    assert (receipt.storage, receipt.partition) == (1, by_customer.route("c7"))
