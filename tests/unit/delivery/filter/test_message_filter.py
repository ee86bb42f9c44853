"""A filter chooses the same messages one by one and in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.filter.columns import mask_of
from tailrace.delivery.filter.expression import Expression, Matched, MessageField, holds
from tailrace.delivery.filter.message_filter import MessageFilter
from tailrace.log.columns import from_records
from tailrace.log.record import Record
from tailrace.message import Partition
from tests.unit.delivery.filter.expressions import expressions, messages

Fields: TypeAlias = "tuple[bytes | None, Mapping[str, bytes] | None]"


def records(chosen: Sequence[Fields]) -> pa.RecordBatch:
    return from_records(
        [Record(at, 0, 0, 0, key, headers, b"") for at, (key, headers) in enumerate(chosen)]
    )


@given(expressions, st.lists(messages, max_size=8), st.integers(0, 8))
@example(Matched(MessageField(None), "."), [(b"\xff", None), (b"a", None)], 0)
@example(Matched(MessageField("ä"), "^.$"), [(None, {"ä": "é".encode()})], 0)
def test_columns_and_single_messages_agree(
    expression: Expression, chosen: list[Fields], skip: int
) -> None:
    expected = [holds(expression, key, headers or {}) for key, headers in chosen]
    batch = records(chosen)
    assert mask_of(expression, batch).tolist() == expected
    assert mask_of(expression, batch.slice(skip)).tolist() == expected[skip:]


def test_headers_behind_a_null_are_no_headers() -> None:
    batch = records([(None, {"a": b"1"}), (None, {"a": b"1"})])
    mask: Any = pa.array([True, False])
    from_arrays: Any = pa.MapArray.from_arrays
    column = from_arrays([0, 1, 2], ["a", "a"], pa.array([b"1", b"1"]), mask=mask)
    batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", column)
    expression = Matched(MessageField("a"), "1")
    assert mask_of(expression, batch).tolist() == [False, True]


LACKING: list[tuple[str, bool]] = [
    ("header.country == 'IN'", False),
    ("header.country != 'IN'", False),
    ("header.country < 'IN'", False),
    ("header.country in ('IN', '')", False),
    ("header.country matches //", False),
    ("header.country exists", False),
    ("not header.country == 'IN'", True),
    ("not header.country != 'IN'", True),
    ("not header.country exists", True),
]


@pytest.mark.parametrize(("text", "expected"), LACKING)
def test_a_test_of_a_header_that_is_not_there_is_false_and_its_negation_true(
    text: str, expected: bool
) -> None:
    assert MessageFilter(text).matches(b"k", {"Country": b"IN"}) is expected


def test_an_empty_key_counts_as_none_and_an_empty_header_does_not() -> None:
    assert not MessageFilter("key exists").matches(b"", {})
    assert not MessageFilter("key == ''").matches(None, {})
    assert MessageFilter("header.a == ''").matches(None, {"a": b""})


def test_values_are_ordered_as_text_and_not_as_numbers() -> None:
    assert MessageFilter("header.size < '9'").matches(None, {"size": b"10"})
    assert MessageFilter("header.name > 'Z'").matches(None, {"name": b"a"})
    assert MessageFilter("header.name > 'z'").matches(None, {"name": "é".encode()})


@pytest.mark.parametrize("count", [3, 300], ids=["few", "many"])
def test_a_batch_keeps_what_matches_and_has_gaps_for_the_rest(count: int) -> None:
    chosen: list[Fields] = [(b"k%d" % (at % 3), None) for at in range(count)]
    batch = FetchedBatch(Partition("orders", 0, 0), 0, count + 5, records(chosen))
    kept = MessageFilter("key == 'k1'").matching(batch)
    assert kept.offsets == list(range(1, count, 3))
    assert set(kept.keys) == {b"k1"}
    assert (kept.start, kept.next_offset) == (0, count + 5)
    assert MessageFilter("key exists").matching(batch) is batch
    assert len(MessageFilter("key == 'other'").matching(batch)) == 0
