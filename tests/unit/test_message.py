"""Positions as text, lazy receipts, and messages that do not print their payload."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DecodeError, InvalidValue
from tailrace.message import Message, Mode, Op, Partition, Position, Range, Receipt, Receipts

names = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", fullmatch=True)
numbers = st.integers(0, 2**63 - 1)


def message(
    key: bytes | None = b"c7",
    data: bytes = b"secret",
    decode: Callable[[Message[str]], str] = lambda message: message.data.decode(),
) -> Message[str]:
    return Message(
        "orders", 1, 7, 42, 1_495_000_000_123, Mode.COPY, Op.INSERT, key, {}, data, decode
    )


@given(names, numbers, numbers, numbers)
def test_positions_and_partitions_survive_writing(
    topic: str, storage: int, partition: int, offset: int
) -> None:
    position = Position(topic, storage, partition, offset)
    assert str(position) == f"{topic}/{storage}.{partition}@{offset}"
    assert Position.parse(str(position)) == position
    assert Partition.parse(str(Partition(topic, storage, partition))) == position[:3]


@pytest.mark.parametrize(
    "text",
    ["", "orders", "orders/1", "orders/1.7", "orders/1.7@", "orders/1.7@-1", "orders/1.x@4",
     "a/b/1.7@42", "/1.7@42", "orders/1.7@42 ", "or ders/1.7@42", "orders/1.7@4@2", "orders/1.7@²"],
)  # fmt: skip
def test_an_invalid_position_is_refused_with_the_valid_form(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"orders/1\.7@42"):
        Position.parse(text)


@pytest.mark.parametrize("text", ["", "orders", "orders/1", "orders/1.7@42", "orders/-1.7", "/1.7"])
def test_an_invalid_partition_is_refused_with_the_valid_form(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"for example orders/1\.7"):
        Partition.parse(text)


def test_a_range_ends_after_its_last_offset() -> None:
    assert Range(Partition("orders", 0, 0), 10, 5).end == 15


def test_a_receipt_has_the_id_of_its_message() -> None:
    assert Receipt("orders", 1, 7, 42, 0).id == message().id == str(message().position)


def test_receipts_are_built_only_when_they_are_read() -> None:
    made: list[int] = []

    def at(index: int) -> Receipt:
        made.append(index)
        return Receipt("orders", 0, 0, 100 + index, 0)

    receipts = Receipts(1_000, at)
    assert len(receipts) == 1_000
    assert repr(receipts) == "<1,000 receipts>"
    assert made == []
    assert receipts[3].offset == 103
    assert receipts[-1].offset == 1_099
    assert made == [3, 999]


def test_receipts_are_pickled_as_a_list() -> None:
    receipts = Receipts(2, lambda index: Receipt("orders", 0, 0, index, 0))
    assert pickle.loads(pickle.dumps(receipts)) == list(receipts)


def test_receipts_behave_like_a_list() -> None:
    receipts = Receipts(5, lambda index: Receipt("orders", 0, 0, index, 0))
    assert [receipt.offset for receipt in receipts] == [0, 1, 2, 3, 4]
    assert [receipt.offset for receipt in receipts[1:-1]] == [1, 2, 3]
    assert [receipt.offset for receipt in receipts[::-2]] == [4, 2, 0]
    assert receipts[2] in receipts
    assert receipts.index(receipts[2]) == 2
    for index in (5, -6):
        with pytest.raises(IndexError):
            receipts[index]


def test_a_message_never_prints_its_payload() -> None:
    shown = repr(message(data=b"secret"))
    assert shown == "<Message orders/1.7@42 key='c7' 6 bytes>"
    assert str(message(data=b"secret")) == shown
    looked_at = message(data=b"secret")
    assert looked_at.value == "secret"
    assert repr(looked_at) == shown


@pytest.mark.parametrize(
    ("key_bytes", "key"),
    [(None, None), (b"c7", "c7"), ("grün".encode(), "grün"), (b"a\xff", "a\\xff")],
)
def test_a_key_shows_as_text(key_bytes: bytes | None, key: str | None) -> None:
    assert message(key=key_bytes).key == key
    assert message(key=key_bytes).key_bytes == key_bytes


def test_a_timestamp_is_the_time_in_utc() -> None:
    assert message().timestamp == datetime(2017, 5, 17, 5, 46, 40, 123_000, tzinfo=UTC)


def test_a_value_is_decoded_on_first_use_and_once() -> None:
    decoded: list[str] = []

    def decode(message: Message[str]) -> str:
        decoded.append(message.id)
        return message.data.decode()

    fresh = message(decode=decode)
    assert decoded == []
    assert fresh.value == fresh.value == "secret"
    assert decoded == ["orders/1.7@42"]


def test_a_value_that_does_not_decode_is_an_error_every_time_and_keeps_its_bytes() -> None:
    def decode(message: Message[str]) -> str:
        raise DecodeError(message.id, "Order", "no")

    broken = message(decode=decode)
    for _ in range(2):
        with pytest.raises(DecodeError):
            _ = broken.value
    assert broken.data == b"secret"


@pytest.mark.parametrize(
    "value",
    [Partition("o", 0, 1), Position("o", 0, 1, 2), Range(Partition("o", 0, 1), 2, 3),
     Receipt("o", 0, 1, 2, 3)],
)  # fmt: skip
def test_positions_and_partitions_can_be_sent_to_another_process(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_an_id_after_an_offset_reset_has_the_position_of_its_message() -> None:
    assert Position.parse("orders/1.7@42+r2") == Position("orders", 1, 7, 42)
    for text in ("orders/1.7@42+r0", "orders/1.7@42+r", "orders/1.7@+r1", "orders/1.7@42+r1+r2"):
        with pytest.raises(InvalidValue):
            Position.parse(text)
