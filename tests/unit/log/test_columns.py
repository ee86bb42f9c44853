"""Records as columns: the same bytes as the plain loop, damage, splitting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import InvalidValue, MessageTooLarge
from tailrace.log import column_codec
from tailrace.log.column_codec import decode_columns, encode_columns
from tailrace.log.columns import (
    FEW,
    HEADERS,
    SCHEMA,
    decode,
    encode,
    from_records,
    normalise,
    records_of,
    split,
)
from tailrace.log.record import (
    TIMESTAMP_MAX,
    DamagedRecord,
    Encoded,
    Record,
    decode_records,
    encode_records,
    scan_positions,
)

NOW_MS = 1_700_000_000_000
MANY = 2 * FEW


def records(keys: st.SearchStrategy[bytes | None], values: st.SearchStrategy[bytes]) -> Any:
    return st.lists(
        st.builds(
            Record,
            offset=st.integers(0, 2**62),
            timestamp=st.integers(0, TIMESTAMP_MAX),
            mode=st.integers(0, 2),
            op=st.integers(0, 4),
            key=keys,
            headers=st.none()
            | st.dictionaries(st.text(max_size=3), st.binary(max_size=9), min_size=1, max_size=2),
            value=values,
        ),
        min_size=1,
        max_size=40,
    )


some_records = records(st.none() | st.binary(min_size=1, max_size=9), st.binary(max_size=30))
even_records = records(st.just(b"key"), st.binary(min_size=7, max_size=7)).map(
    lambda rows: [row._replace(headers=None) for row in rows]
)
keyless_records = records(st.none(), st.just(b"")).map(
    lambda rows: [row._replace(headers=None) for row in rows]
)


def many(count: int = MANY, **fields: Any) -> list[Record]:
    return [
        Record(i, NOW_MS + i, i % 3, i % 5, b"c%d" % i, None, b"v" * (i % 7))._replace(**fields)
        for i in range(count)
    ]


def stamped(rows: list[Record], base: int = 0) -> tuple[bytearray, Encoded]:
    encoded = encode(tuple(rows))
    return bytearray(encoded.stamp(base)), encoded


@given(some_records | even_records | keyless_records)
def test_columns_and_the_loop_make_the_same_bytes(rows: list[Record]) -> None:
    by_loop, by_columns = encode_records(rows), encode_columns(from_records(rows))
    assert bytes(by_columns.stamp(9)) == bytes(by_loop.stamp(9))
    assert by_columns.positions.tolist() == by_loop.positions.tolist()
    assert by_columns.positions.dtype == np.uint32
    assert by_columns.first_timestamp == by_loop.first_timestamp
    assert by_columns.last_timestamp == by_loop.last_timestamp


@given(some_records | even_records | keyless_records)
def test_columns_and_the_loop_read_the_same_records(rows: list[Record]) -> None:
    encoded = encode_records(rows)
    data = bytes(encoded.stamp(5))
    batch = decode_columns(data, encoded.positions)
    assert batch is not None
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert records_of(batch) == decode_records(data)
    assert batch.equals(from_records(decode_records(data)))


@given(some_records)
def test_records_survive_the_way_through_columns(rows: list[Record]) -> None:
    assert records_of(from_records(rows)) == rows


@given(some_records, st.integers(0, 40), st.integers(0, 40))
def test_a_slice_of_a_batch_encodes_like_its_rows(
    rows: list[Record], start: int, size: int
) -> None:
    part = from_records(rows).slice(start, size)
    expected = encode_records(rows[start : start + size])
    assert bytes(encode_columns(part).data) == bytes(expected.data)


@pytest.mark.parametrize("count", [0, 1, FEW - 1, FEW, MANY])
def test_every_form_and_number_of_records_encodes_alike(count: int) -> None:
    rows = many(count)
    expected = encode_records(rows)
    for encoded in (encode(tuple(rows)), encode(from_records(rows)), encode(expected)):
        assert bytes(encoded.data) == bytes(expected.data)
        assert encoded.positions.tolist() == expected.positions.tolist()
    assert records_of(decode(expected.stamp(0), expected.positions)) == rows
    assert records_of(decode(expected.stamp(0))) == rows


@pytest.mark.parametrize("value", [b"even", None])
def test_many_records_are_stamped_in_place_and_again(value: bytes | None) -> None:
    rows = many() if value is None else many(key=b"k", value=value)
    encoded = encode(from_records(rows))
    encoded.stamp(2**40)
    assert [row.offset for row in decode_records(encoded.stamp(3))] == list(range(3, 3 + MANY))


def test_bytes_under_a_null_key_are_not_written() -> None:
    offsets, data = pa.py_buffer(np.array([0, 6, 9], np.int32).data), pa.py_buffer(b"hiddenkey")
    validity = pa.py_buffer(b"\x02")
    keys = pa.Array.from_buffers(pa.binary(), 2, [validity, offsets, data])
    batch = normalise(pa.record_batch({"key": keys, "value": [b"a", b"b"]}), NOW_MS)
    assert [row.key for row in decode_records(encode_columns(batch).data)] == [None, b"key"]


@pytest.mark.parametrize("field", ["mode", "op", "timestamp"])
@pytest.mark.parametrize("value", [-1, 7, 300, 2**64])
def test_many_records_are_refused_like_one(field: str, value: int) -> None:
    if field == "timestamp" and 0 <= value <= TIMESTAMP_MAX:
        return
    wrong: dict[str, Any] = {field: value}
    rows = many()
    rows[70] = rows[70]._replace(**wrong)
    with pytest.raises(InvalidValue, match=f"{field} is {value}"):
        encode(tuple(rows))


@pytest.mark.parametrize("count", [71, MANY])
def test_a_null_value_is_refused_with_its_row(count: int) -> None:
    values = pa.array([b"x"] * 70 + [None] * (count - 70), pa.binary())
    index = SCHEMA.get_field_index("value")
    with pytest.raises(InvalidValue, match="'value' in row 70"):
        encode(from_records(many(count)).set_column(index, "value", values))


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("pairs", [[("a", b"1"), ("a", b"2")], [("a", None)]])
def test_headers_that_cannot_be_stored_are_refused(count: int, pairs: object) -> None:
    headers = pa.array([pairs] * count, HEADERS)
    batch = normalise(pa.record_batch({"value": [b"x"] * count, "headers": headers}), NOW_MS)
    with pytest.raises(InvalidValue, match="header"):
        encode(batch)


def test_more_than_a_batch_may_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = many()
    size = len(encode(tuple(rows)).data)
    monkeypatch.setattr(column_codec, "BATCH_BYTES_MAX", size)
    encode(tuple(rows))
    monkeypatch.setattr(column_codec, "BATCH_BYTES_MAX", size - 1)
    with pytest.raises(MessageTooLarge, match="a batch has"):
        encode(tuple(rows))


@pytest.mark.parametrize(
    "wrong", [[0] * MANY, list(range(MANY)), [2**32 - 1] * MANY, [5] * MANY, []]
)
def test_wrong_positions_are_rebuilt(wrong: list[int]) -> None:
    data, _ = stamped(many())
    assert records_of(decode(data, np.array(wrong, np.uint32))) == many()


def test_missing_positions_of_some_records_are_rebuilt() -> None:
    data, encoded = stamped(many())
    for positions in (encoded.positions[:-1], np.delete(encoded.positions, 200)):
        assert records_of(decode(data, positions)) == many()


@given(st.integers(0, MANY - 1), st.integers(8, 11) | st.integers(21, 24), st.integers(0, 7))
def test_a_flipped_bit_in_a_length_is_found(row: int, at: int, bit: int) -> None:
    data, encoded = stamped(many())
    data[int(encoded.positions[row]) + at] ^= 1 << bit
    with pytest.raises(DamagedRecord) as caught:
        decode(data, encoded.positions)
    assert caught.value.position == encoded.positions[row]


def test_a_flipped_bit_in_a_data_length_is_found() -> None:
    data, encoded = stamped(many(key=b"k"))
    data[int(encoded.positions[99]) + 29] ^= 1
    with pytest.raises(DamagedRecord, match="message length") as caught:
        decode(data, encoded.positions)
    assert caught.value.position == encoded.positions[99]


@pytest.mark.parametrize("flags", [0b11, 5 << 2, 7 << 2, 1 << 5, 1 << 6])
def test_a_mode_byte_without_a_meaning_is_damage(flags: int) -> None:
    data, encoded = stamped(many())
    data[int(encoded.positions[99]) + 20] = flags
    with pytest.raises(DamagedRecord, match="mode byte") as caught:
        decode(data, encoded.positions)
    assert caught.value.position == encoded.positions[99]


def test_a_promised_header_block_that_is_not_there_is_damage() -> None:
    data, encoded = stamped(many())
    data[int(encoded.positions[99]) + 20] |= 0x80
    with pytest.raises(DamagedRecord, match="header block"):
        decode(data, encoded.positions)


@given(st.lists(st.integers(0, 11), min_size=1, max_size=60))
def test_splitting_keeps_every_row_once_and_in_order(numbers: list[int]) -> None:
    times = [7919 * index % 101 for index in range(len(numbers))]
    rows = [
        row._replace(timestamp=time_ms)
        for row, time_ms in zip(many(len(numbers)), times, strict=True)
    ]
    batch, partitions = from_records(rows), np.array(numbers, np.int64)
    expected = [
        (number, [i for i, n in enumerate(numbers) if n == number])
        for number in sorted(set(numbers))
    ]
    parts = split(encode(batch), partitions, 12)
    assert [(number, indices.tolist()) for number, _, indices in parts] == expected
    for _, part, indices in parts:
        expected_part = encode(tuple(rows[i] for i in indices))
        assert bytes(part.stamp(4)) == bytes(expected_part.stamp(4))
        assert part.positions.tolist() == scan_positions(part.data).tolist()
        assert part.first_timestamp == expected_part.first_timestamp
        assert part.last_timestamp == expected_part.last_timestamp
