"""One record as bytes: golden bytes, round trips, refusals, damage."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import InvalidValue, MessageTooLarge
from tailrace.log import record as record_module
from tailrace.log.record import (
    OVERHEAD_BYTES,
    TIMESTAMP_MAX,
    DamagedRecord,
    Record,
    decode_records,
    encode_records,
    scan_positions,
)

GOLDEN = bytes.fromhex("0000000000000000 0000000b 00000000591be3c0 00 00000001 41 00000002 7b7d")

records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(0, TIMESTAMP_MAX),
    mode=st.integers(0, 2),
    op=st.integers(0, 4),
    key=st.none() | st.binary(min_size=1, max_size=12),
    headers=st.none() | st.dictionaries(st.text(max_size=4), st.binary(max_size=9), min_size=1),
    value=st.binary(max_size=40),
)


def one(**fields: Any) -> Record:
    return Record(0, 1495000000, 0, 0, b"A", None, b"{}")._replace(**fields)


def encoded(*some: Record, base: int = 0) -> bytes:
    return bytes(encode_records(some).stamp(base))


def test_the_published_record_has_the_published_bytes() -> None:
    assert encoded(one()) == GOLDEN
    assert len(GOLDEN) == OVERHEAD_BYTES + len(b"A") + len(b"{}")


def test_the_published_bytes_are_the_published_record() -> None:
    assert decode_records(GOLDEN) == [one()]


def test_mode_op_and_headers_share_the_mode_byte() -> None:
    assert encoded(one(mode=1, op=2))[20] == 0b0000_1001
    assert encoded(one(mode=2, op=4, headers={"a": b"b"}))[20] == 0b1001_0010


def test_a_header_block_precedes_the_payload() -> None:
    block = msgspec.msgpack.encode({"a": b"b"})
    data = len(block).to_bytes(4, "big") + block + b"{}"
    assert encoded(one(headers={"a": b"b"})).endswith(b"A" + len(data).to_bytes(4, "big") + data)


@pytest.mark.parametrize("nothing", [None, {}])
def test_without_headers_there_is_no_block(nothing: dict[str, bytes] | None) -> None:
    assert encoded(one(headers=nothing)) == GOLDEN


@pytest.mark.parametrize("nothing", [None, b""])
def test_an_empty_key_is_no_key(nothing: bytes | None) -> None:
    assert decode_records(encoded(one(key=nothing))) == [one(key=None)]


@given(st.lists(records, max_size=50), st.integers(0, 2**62))
def test_an_encoded_record_decodes(some: list[Record], base: int) -> None:
    expected = [record._replace(offset=base + i) for i, record in enumerate(some)]
    encoded = encode_records(some)
    assert decode_records(encoded.stamp(base)) == expected
    assert encoded.positions.tolist() == scan_positions(encoded.data).tolist()
    assert encoded.count == len(some)
    times = [record.timestamp for record in some] or [0]
    assert (encoded.first_timestamp, encoded.last_timestamp) == (min(times), max(times))


@pytest.mark.parametrize("count", [1, 31, 32, 100])
@pytest.mark.parametrize("sizes", [(5,), (5, 6, 0)])
def test_stamping_again_replaces_the_offsets(count: int, sizes: tuple[int, ...]) -> None:
    some = [one(value=bytes(sizes[i % len(sizes)])) for i in range(count)]
    encoded = encode_records(some)
    encoded.stamp(2**40)
    assert decode_records(encoded.stamp(7)) == [
        r._replace(offset=7 + i) for i, r in enumerate(some)
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mode", 3),
        ("mode", -1),
        ("op", 5),
        ("op", -1),
        ("timestamp", -1),
        ("timestamp", TIMESTAMP_MAX + 1),
    ],
)
def test_a_field_without_an_encoding_is_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(InvalidValue, match=f"{field} is {value}"):
        encode_records([one(**{field: value})])


@pytest.mark.parametrize("headers", [{"a": "text"}, {1: b"number"}, {"a": None}])
def test_headers_other_than_bytes_under_text_are_refused(headers: object) -> None:
    with pytest.raises(InvalidValue, match="header"):
        encode_records([one(headers=headers)])


def test_more_than_a_batch_may_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "BATCH_BYTES_MAX", 100)
    encode_records([one()] * 3)
    with pytest.raises(MessageTooLarge, match="128 bytes"):
        encode_records([one()] * 4)


@pytest.mark.parametrize("cut", range(1, len(GOLDEN)))
def test_a_record_cut_short_is_damaged(cut: int) -> None:
    with pytest.raises(DamagedRecord) as caught:
        decode_records(GOLDEN + GOLDEN[:cut])
    assert caught.value.position == len(GOLDEN)


@pytest.mark.parametrize("at", [*range(8, 12), *range(21, 25), *range(26, 30)])
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_any_length_is_found(at: int, bit: int) -> None:
    data = bytearray(GOLDEN * 3)
    data[len(GOLDEN) + at] ^= 1 << bit
    with pytest.raises(DamagedRecord) as caught:
        decode_records(data)
    assert caught.value.position == len(GOLDEN)
    with pytest.raises(DamagedRecord):
        scan_positions(data)


@pytest.mark.parametrize("flags", [0b11, 5 << 2, 6 << 2, 7 << 2, 1 << 5, 1 << 6])
def test_a_mode_byte_without_a_meaning_is_damage(flags: int) -> None:
    data = bytearray(GOLDEN)
    data[20] = flags
    with pytest.raises(DamagedRecord, match="mode byte"):
        decode_records(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\0", b"\0\0\0\2\x80", b"\0\0\0\1\x93", b"\0\0\0\4\x81\xa1a\1", b"\0\0\0\1\1"],
)
def test_data_that_does_not_begin_with_the_promised_block_is_damage(data: bytes) -> None:
    damaged = bytearray(encoded(one(value=data)))
    damaged[20] = 0x80
    with pytest.raises(DamagedRecord, match="header block"):
        decode_records(damaged)


def test_damage_says_where_and_why_and_pickles() -> None:
    damage = pickle.loads(pickle.dumps(DamagedRecord(32, "message length 9 is not 1 + 1 + 8")))
    assert str(damage) == "damaged record at byte 32: message length 9 is not 1 + 1 + 8"
    assert isinstance(damage, ValueError)


def test_no_records_are_no_bytes() -> None:
    nothing = encode_records([])
    assert (bytes(nothing.stamp(5)), nothing.count) == (b"", 0)
    assert decode_records(b"") == []
    assert scan_positions(b"").dtype == np.uint32
