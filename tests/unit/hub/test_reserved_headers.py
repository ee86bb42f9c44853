"""Headers that only Tailrace may write: every push refuses them, and users do not see them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tests.support.topics import all_messages, nothing_stored, push_for

HEADERS = pa.map_(pa.string(), pa.binary())
REFUSED = r"header name 'tailrace\.for' is reserved.*valid: any name that does not begin with"


@pytest.fixture
def topic(hub: Hub) -> Topic[bytes]:
    return hub.create_topic("orders", bytes, partitions=1)


def _columns(*headers: dict[str, bytes] | None) -> pa.RecordBatch:
    pairs = [None if each is None else list(each.items()) for each in headers]
    values = [b"%d" % number for number in range(len(headers))]
    return pa.RecordBatch.from_pydict({"value": values, "headers": pa.array(pairs, HEADERS)})


def _push(hub: Hub, topic: Topic[bytes]) -> None:
    topic.push(b"1", headers={"tailrace.for": "billing"})


def _push_once(hub: Hub, topic: Topic[bytes]) -> None:
    topic.push(b"1", headers={"tailrace.for": "billing"}, dedup_id="a")


def _append(hub: Hub, topic: Topic[bytes]) -> None:
    topic.append(_columns(None, {"a": b"b", "tailrace.for": b"billing"}))


def _produce(hub: Hub, topic: Topic[bytes]) -> None:
    with topic.producer() as producer:
        producer.push(b"1", headers={"tailrace.for": b"billing"})


def _transact(hub: Hub, topic: Topic[bytes]) -> None:
    with hub.transaction() as transaction:
        transaction.push(topic, b"1", headers={"tailrace.for": b"billing"})


@pytest.mark.parametrize("push", [_push, _push_once, _append, _produce, _transact])
def test_a_reserved_header_is_refused_by_name_and_nothing_is_stored(
    hub: Hub, topic: Topic[bytes], push: Callable[[Hub, Topic[bytes]], None]
) -> None:
    with pytest.raises(InvalidValue, match=REFUSED):
        push(hub, topic)
    assert nothing_stored(topic)


@pytest.mark.parametrize("name", ["tailrace.", "tailrace.origin", "tailrace.x"])
def test_every_name_with_the_prefix_is_reserved(topic: Topic[bytes], name: str) -> None:
    with pytest.raises(InvalidValue, match=f"'{name}' is reserved"):
        topic.push(b"1", headers={name: b"x"})
    with pytest.raises(InvalidValue, match=f"'{name}' is reserved"):
        topic.append(_columns({name: b"x"}))


@pytest.mark.parametrize("name", ["tailrace", "Tailrace.for", "x-tailrace.for", "for", ""])
def test_similar_names_are_not_reserved(topic: Topic[bytes], name: str) -> None:
    topic.push(b"1", headers={name: b"x"})
    topic.append(_columns({name: b"x"}))
    assert [each.headers for each in all_messages(topic)] == [{name: b"x"}] * 2


def test_a_slice_is_not_refused_for_a_row_outside_it(topic: Topic[bytes]) -> None:
    columns = _columns({"tailrace.for": b"billing"}, {"a": b"b"})
    topic.append(columns.slice(1))
    assert [each.headers for each in all_messages(topic)] == [{"a": b"b"}]


def test_a_redelivered_message_shows_its_origin_and_no_header_of_tailrace(
    hub: Hub, topic: Topic[Any]
) -> None:
    topic.push(b"0", headers={"a": b"b"})
    push_for(topic, "billing", b"again")
    first, again = topic.tail(group="billing", until="end")
    assert (first.headers, first.origin) == ({"a": b"b"}, None)
    assert (again.headers, again.origin) == ({}, "orders/0.0@0")
    assert copy.copy(again).origin == "orders/0.0@0"
    read = topic.read(0, 0, again.offset)
    assert (read.headers, read.origin) == ({}, "orders/0.0@0")


def test_a_group_can_forward_the_columns_of_a_redelivered_message(
    hub: Hub, topic: Topic[Any]
) -> None:
    copies = hub.create_topic("copies", bytes, partitions=1)
    topic.push(b"0", headers={"a": b"b"})
    push_for(topic, "billing", b"again")
    for batch in topic.tail(group="billing", until="end").batches():
        copies.append(batch.drop_columns(["offset"]))
    assert [(each.data, each.headers) for each in all_messages(copies)] == [
        (b"0", {"a": b"b"}),
        (b"again", {}),
    ]
