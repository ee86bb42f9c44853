"""The rows that messages become, and the messages that are mirrored."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Transaction
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Message, Mode, Op, Partition
from tailrace.readers.topic.headers import source_headers, user_headers
from tests.support.topics import all_messages, push_for
from tests.unit.readers.topic.read_topics import MemoryTopicReader, TopicSource


def append(topic: Topic[Any], *records: Record) -> None:
    """Append records as they are, also those that no user can push."""
    target = topic.view.target
    appends = tuple((target.partition_of(record.key), (record,)) for record in records)
    topic.view.backend.commit(Transaction(appends))


def record(
    value: bytes,
    headers: dict[str, bytes] | None = None,
    mode: Mode = Mode.COPY,
    op: Op = Op.INSERT,
) -> Record:
    return Record(0, 1000, mode, op, b"k", headers, value)


def shown(message: Message[Any]) -> tuple[Any, ...]:
    return message.key, message.data, message.mode, message.op, message.timestamp, message.headers


@pytest.fixture
def source(shop: Hub) -> TopicSource:
    return TopicSource(MemoryTopicReader(shop))


@pytest.fixture
def mirror(shop: Hub) -> TopicSource:
    source = TopicSource(MemoryTopicReader(shop, into="copy"))
    source.hub.create_topic("copy", partitions=3)
    return source


def test_a_message_becomes_a_row_with_its_key_and_position_in_headers(
    orders: Topic[Any], source: TopicSource
) -> None:
    receipt = orders.push({"id": 1}, key="c7", headers={"trace": "x"}, timestamp=1234)
    source.finish()
    [row] = all_messages(source.log)
    headers = {"trace": b"x", "source.key": b"c7", "source.position": receipt.id.encode()}
    [message] = all_messages(orders)
    assert shown(row) == (
        "orders",
        b'{"id":1}',
        Mode.COPY,
        Op.INSERT,
        message.timestamp,
        headers,
    )


def test_a_message_without_a_key_has_no_header_with_one(
    orders: Topic[Any], source: TopicSource
) -> None:
    receipt = orders.push({"id": 1})
    source.finish()
    [row] = all_messages(source.log)
    assert row.headers == {"source.position": receipt.id.encode()}


def test_modes_ops_and_control_records_are_kept(orders: Topic[Any], source: TopicSource) -> None:
    given = [
        record(b'{"id":1}', mode=Mode.SYNC, op=Op.UPDATE),
        record(b"", mode=Mode.SYNC, op=Op.DELETE),
        record(b"no JSON", mode=Mode.SYNC, op=Op.COMMAND),
        record(b'{"rows":2}', mode=Mode.COMPLETE, op=Op.NOOP),
    ]
    append(orders, *given)
    source.finish()
    found = all_messages(source.log, control=True)
    assert [(each.data, each.mode, each.op) for each in found] == [
        (each.value, each.mode, each.op) for each in given
    ]
    assert all_messages(source.letters) == []


def test_rows_keep_their_order_per_key_in_a_commit_log_with_several_partitions(
    shop: Hub, orders: Topic[Any]
) -> None:
    source = TopicSource(MemoryTopicReader(shop), partitions=4)
    orders.push_many([(f"k{number % 40}", {"n": number}) for number in range(200)])
    source.finish()
    found = all_messages(source.log)
    for message in found:
        assert message.partition == source.log.route(message.headers["source.key"])
    assert {message.partition for message in found} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "value",
    [
        b"[1]",
        b"3",
        b'"text"',
        b"{",
        b'{"a":1}{"b":2}',
        b'{"a":1e999}',
        b'{"a":"\xff"}',
        b'{"a":' * 9999 + b"}" * 9999,
    ],
    ids=lambda value: value[:14],
)
def test_a_value_that_is_not_a_json_object_is_a_dead_letter_that_names_its_position(
    value: bytes, orders: Topic[Any], source: TopicSource
) -> None:
    append(orders, record(b'{"n":1}'), record(value), record(b'{\n"n": 2}'))
    source.finish()
    assert [message.value for message in all_messages(source.log)] == [{"n": 1}, {"n": 2}]
    [letter] = all_messages(source.letters)
    assert (letter.key, letter.data) == ("orders", value)
    [bad] = [message for message in all_messages(orders) if message.data == value]
    assert letter.headers["tailrace.where"] == bad.id.encode()
    assert b"not a JSON object" in letter.headers["tailrace.error"]


def test_a_message_of_another_content_type_is_a_dead_letter(
    orders: Topic[Any], source: TopicSource
) -> None:
    orders.push(b"bytes", key="k")
    orders.push("text", key="k")
    source.finish()
    assert [message.data for message in all_messages(source.letters)] == [b"bytes", b"text"]


def test_reserved_headers_are_left_out_and_records_of_one_consumer_are_not_read(
    orders: Topic[Any], source: TopicSource, mirror: TopicSource
) -> None:
    append(orders, record(b'{"n":1}', {"tailrace.replayed": b"r1", "kept": b"x"}))
    push_for(orders, "billing", b'{"n":2}')
    source.finish()
    mirror.finish()
    [row] = all_messages(source.log)
    assert set(row.headers) == {"kept", "source.key", "source.position"}
    [copy] = all_messages(mirror.hub.topic("copy"))
    assert copy.headers == {"kept": b"x"}


def test_a_row_that_was_a_row_before_has_its_position_in_the_topic_that_was_read(
    orders: Topic[Any], source: TopicSource
) -> None:
    append(orders, record(b"{}", {"source.key": b"old", "source.position": b"a/0.0@1", "b": b""}))
    source.finish()
    [row], [message] = all_messages(source.log), all_messages(orders)
    assert row.headers == {"b": b"", "source.key": b"k", "source.position": message.id.encode()}


def test_a_mirror_pushes_messages_of_any_value_unchanged(
    orders: Topic[Any], mirror: TopicSource
) -> None:
    append(
        orders,
        record(b"[1]", {"trace": b"x"}, Mode.SYNC, Op.UPDATE),
        record(b"any bytes \xff"),
        record(b"{}", mode=Mode.COMPLETE, op=Op.NOOP),
    )
    run = mirror.finish()
    copies = all_messages(mirror.hub.topic("copy"), control=True)
    assert [shown(copy) for copy in copies] == [
        shown(message) for message in all_messages(orders, control=True)
    ]
    assert len(copies) == 3
    assert all_messages(mirror.log, control=True) == []
    assert run.rows == 2


def test_headers_of_a_slice_are_those_of_its_rows() -> None:
    given: list[dict[str, bytes] | None] = [
        {"a": b"0", "tailrace.x": b"0"},
        {"b": b"1", "tailrace.y": b"1", "c": b"1"},
        None,
        {"tailrace.z": b"3"},
        {"d": b"4"},
        {"tailrace.e": b"5"},
    ]
    keys = [b"k", None, b"j", None, b"l", None]
    records = [
        Record(number, 0, 0, 0, key, headers, b"{}")
        for number, (key, headers) in enumerate(zip(keys, given, strict=True))
    ]
    part = from_records(records).slice(1, 4)
    assert user_headers(part["headers"]).to_pylist() == [
        [("b", b"1"), ("c", b"1")],
        None,
        None,
        [("d", b"4")],
    ]
    assert source_headers(part, Partition("t", 0, 3)).to_pylist() == [
        [("b", b"1"), ("c", b"1"), ("source.position", b"t/0.3@1")],
        [("source.key", b"j"), ("source.position", b"t/0.3@2")],
        [("source.position", b"t/0.3@3")],
        [("d", b"4"), ("source.key", b"l"), ("source.position", b"t/0.3@4")],
    ]
