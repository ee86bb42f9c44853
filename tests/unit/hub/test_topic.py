"""Pushing to topics: partitions of messages, and refusals."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import (
    DecodeError,
    EncodeError,
    InvalidValue,
    MessageTooLarge,
)
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Mode, Op
from tailrace.settings import HubSettings
from tailrace.testing import ManualClock
from tests.support.faulty_backend import FaultyBackend
from tests.support.topics import Order, nothing_stored

NOT_A_NUMBER: Any = "one"


def test_a_pushed_message_is_read_back_where_its_receipt_says(orders: Topic[Order]) -> None:
    receipt = orders.push(Order(1), key="c7", headers={"trace": "a", "raw": b"\xff"})
    message = orders.read(receipt.storage, receipt.partition, receipt.offset)
    assert message.value == Order(1)
    assert (message.id, message.key, message.timestamp_ms) == (
        receipt.id,
        "c7",
        ManualClock().now_ms(),
    )
    assert message.headers == {"trace": b"a", "raw": b"\xff"}
    assert (message.mode, message.op) == (Mode.COPY, Op.INSERT)


def test_a_key_goes_where_route_says_as_text_and_as_bytes(orders: Topic[Order]) -> None:
    for key in ("a", "c7", "é", "longer than four bytes"):
        assert orders.push(Order(1), key=key).partition == orders.route(key)
        assert orders.route(key) == orders.route(key.encode())


def test_messages_without_a_key_are_spread(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes)
    random.seed(7)
    assert {topic.push(b"x").partition for _ in range(200)} == {0, 1, 2, 3}
    assert {topic.push(b"x", key="").partition for _ in range(200)} == {0, 1, 2, 3}


def test_an_empty_key_is_read_back_as_none(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes, partitions=1)
    assert topic.read(*topic.push(b"x", key=b"")[1:4]).key is None


@pytest.mark.parametrize("timestamp", [1_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)])
def test_a_timestamp_may_be_given(orders: Topic[Order], timestamp: int | datetime) -> None:
    assert orders.push(Order(1), timestamp=timestamp).timestamp == 1_000


def test_push_many_returns_each_receipt_in_order(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes)
    for count in (1, 5, 300):
        messages = [(f"k{i % 17}" if i % 5 else None, b"%d" % i) for i in range(count)]
        receipts = topic.push_many(messages)
        assert len(receipts) == count
        for receipt, (key, value) in zip(receipts, messages, strict=True):
            message = topic.read(*receipt[1:4])
            assert (message.key, message.data) == (key, value)
            assert key is None or receipt.partition == topic.route(key)


def test_messages_without_a_key_of_one_batch_go_to_one_partition(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes)
    for count in (9, 300):
        receipts = topic.push_many([(None, b"x")] * count)
        assert len({receipt.partition for receipt in receipts}) == 1


def test_push_many_of_nothing_stores_nothing(orders: Topic[Order]) -> None:
    assert list(orders.push_many([])) == []
    assert nothing_stored(orders)


def test_push_many_accepts_any_iterable(orders: Topic[Order]) -> None:
    receipts = orders.push_many((str(i), Order(i)) for i in range(3))
    assert [orders.read(*receipt[1:4]).value.id for receipt in receipts] == [0, 1, 2]


def test_append_stores_columns_and_returns_their_ranges(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes)
    keys = [f"k{i % 9}" for i in range(500)]
    batch = pa.RecordBatch.from_pydict({"key": keys, "value": [b"%d" % i for i in range(500)]})
    ranges = topic.append(batch)
    assert sum(landed.count for landed in ranges) == 500
    found = [
        (row["key"], int(row["value"]), landed.partition.number)
        for landed in ranges
        for rows in topic.batches(0, landed.partition.number, landed.start, landed.end)
        for row in rows.to_pylist()
    ]
    assert {value for _, value, _ in found} == set(range(500))
    assert all(topic.route(key) == number for key, _, number in found)
    for key in set(keys):
        values = [value for held, value, _ in found if held == key.encode()]
        assert values == sorted(values)


def test_append_of_no_rows_stores_nothing(orders: Topic[Order]) -> None:
    assert orders.append(pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})) == []


def test_a_value_of_another_content_type_has_a_header(hub: Hub) -> None:
    untyped = hub.create_topic("t")
    for count in (1, 300):
        receipts = untyped.push_many([(None, "text"), *[(None, {"id": 1})] * count])
        text, document = (untyped.read(*receipts[i][1:4]) for i in (0, 1))
        assert (text.value, document.value) == ("text", {"id": 1})
        assert list(text.headers) == ["content-type"]
        assert not document.headers


@pytest.mark.parametrize("key", ["x" * (1 << 20), b"x" * (1 << 20)])
def test_a_key_of_a_mebibyte_is_too_large(hub: Hub, key: str | bytes) -> None:
    topic = hub.create_topic("t", bytes)
    with pytest.raises(MessageTooLarge, match=r"a key has 1,048,576 bytes.*65,536"):
        topic.push(b"x", key=key)
    with pytest.raises(MessageTooLarge, match="a key"):
        topic.push_many([("ok", b"x")] * 300 + [(key, b"x")])
    with pytest.raises(MessageTooLarge, match="a key"):
        topic.append(pa.RecordBatch.from_pydict({"key": [key], "value": [b"x"]}))
    with topic.producer() as producer, pytest.raises(MessageTooLarge, match="a key"):
        producer.push(b"x", key=key)
    assert nothing_stored(topic)


@pytest.mark.parametrize("count", [1, 300])
def test_a_message_over_the_limit_is_refused_whole(backend: FaultyBackend, count: int) -> None:
    settings = HubSettings.of(message_bytes_max=100)
    topic = Hub.from_backend(backend, settings=settings).create_topic("t", bytes)
    with pytest.raises(MessageTooLarge, match=r"101 bytes.*100"):
        topic.push_many([("k", b"x" * 100)] * count + [("k", b"x" * 101)])
    values = [b"x" * 100] * count + [b"x" * 101]
    with pytest.raises(MessageTooLarge, match=r"101 bytes.*100"):
        topic.append(pa.RecordBatch.from_pydict({"value": values}))
    with topic.producer() as producer, pytest.raises(MessageTooLarge, match=r"101 bytes.*100"):
        producer.push(b"x" * 101)
    with pytest.raises(MessageTooLarge):
        topic.push(b"x" * 90, headers={"name": b"x" * 20})
    assert nothing_stored(topic)
    assert topic.push(b"x" * 100).offset >= 0


def test_headers_count_towards_the_limit_in_columns_too(backend: FaultyBackend) -> None:
    settings = HubSettings.of(message_bytes_max=100)
    topic = Hub.from_backend(backend, settings=settings).create_topic("t", bytes)
    headers = pa.array([[("name", b"x" * 20)]], pa.map_(pa.string(), pa.binary()))
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * 90]), "headers": headers})
    with pytest.raises(MessageTooLarge):
        topic.append(batch)
    assert nothing_stored(topic)


@pytest.mark.parametrize(
    "columns",
    [
        {"value": pa.array([b"a", None])},
        {"value": pa.array([1, 2])},
        {"value": pa.array([b"a", b"b"]), "key": pa.array([1, 2])},
        {"value": pa.array([b"a", b"b"]), "timestamp": pa.array(["a", "b"])},
        {"value": pa.array([b"a", b"b"]), "mode": pa.array([0, 9])},
        {"value": pa.array([b"a", b"b"]), "headers": pa.array([b"a", b"b"])},
        {"value": pa.array([b"a", b"b"]), "colour": pa.array([1, 2])},
        {"key": pa.array([b"a", b"b"])},
    ],
    ids=["null", "value", "key", "timestamp", "mode", "headers", "unknown", "no value"],
)
def test_columns_that_are_wrong_are_named_and_nothing_is_stored(
    orders: Topic[Order], columns: dict[str, pa.Array[Any]]
) -> None:
    with pytest.raises(InvalidValue):
        orders.append(pa.RecordBatch.from_pydict(columns))
    assert nothing_stored(orders)


@pytest.mark.parametrize("value", [None, {"id": 1}, Order(NOT_A_NUMBER), "text", 7])
def test_a_value_that_is_not_of_the_type_does_not_encode(
    orders: Topic[Order], value: object
) -> None:
    wrong: Any = value
    for push in (
        orders.push,
        lambda each: orders.push_many([("k", Order(1))] * 300 + [("k", each)]),
    ):
        with pytest.raises(EncodeError, match="nothing was written"):
            push(wrong)
    assert nothing_stored(orders)


def test_a_null_payload_is_refused_without_a_type_too(hub: Hub) -> None:
    topic = hub.create_topic("t")
    with pytest.raises(EncodeError, match="null payload"):
        topic.push(None)
    assert nothing_stored(topic)


@pytest.mark.parametrize("key", [7, 1.5, ["a"]])
def test_a_key_that_is_neither_text_nor_bytes_is_refused(orders: Topic[Order], key: Any) -> None:
    with pytest.raises(InvalidValue, match="key"):
        orders.push(Order(1), key=key)
    with pytest.raises(InvalidValue, match="key"):
        orders.push_many([("k", Order(1))] * 300 + [(key, Order(1))])
    assert nothing_stored(orders)


@pytest.mark.parametrize(
    "wrong",
    [
        [Order(1), Order(2)],
        [("k", Order(1), {})],
        [{"id": 1, "customer": "c7"}, {"id": 2, "customer": "c8"}],
        ["c7", "c8"],
    ],
    ids=["values", "triples", "mappings with two keys", "texts of two characters"],
)
def test_messages_that_are_not_pairs_are_refused(hub: Hub, wrong: Any) -> None:
    topic = hub.create_topic("any")
    with pytest.raises(InvalidValue, match=r"pairs of a key and a value: \[\(key, value\)"):
        topic.push_many(wrong)
    assert nothing_stored(topic)


@pytest.mark.parametrize("headers", [{"a": 1}, {1: b"a"}])
def test_headers_that_are_not_text_and_bytes_are_refused(
    orders: Topic[Order], headers: Any
) -> None:
    with pytest.raises(InvalidValue, match="header"):
        orders.push(Order(1), headers=headers)


@pytest.mark.parametrize("timestamp", [-1, 10**15, "now", datetime(2026, 1, 1)])
def test_a_time_that_has_no_encoding_is_refused(orders: Topic[Order], timestamp: Any) -> None:
    with pytest.raises(InvalidValue, match="timestamp"):
        orders.push(Order(1), timestamp=timestamp)


def test_a_payload_that_does_not_decode_names_its_position(hub: Hub) -> None:
    raw = hub.create_topic("t", bytes, partitions=1)
    receipt = raw.push(b'{"id": "one"}')
    message = hub.topic("t", Order, any_type=True).read(*receipt[1:4])
    with pytest.raises(DecodeError, match=rf"{receipt.id} is not Order.*\$\.id"):
        _ = message.value
    assert message.data == b'{"id": "one"}'
