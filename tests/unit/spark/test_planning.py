"""Dividing work among triggers and tasks of Spark, and columns between Spark and topics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from tailrace.errors import InvalidValue
from tailrace.log.index import ENTRY
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Partition
from tailrace.spark.admission import divide_evenly
from tailrace.spark.columns import ToSpark, check_write, spark_schema, to_append
from tailrace.spark.ranges import ReadRange, SegmentSpan, join_ranges, split_spans

LAGS = st.lists(st.integers(0, 1000), min_size=1, max_size=30)


@given(LAGS, st.integers(1, 5000))
def test_a_limit_is_divided_completely_and_no_stream_gets_more_than_its_lag(
    lags: list[int], limit: int
) -> None:
    given_out = divide_evenly(lags, limit)
    assert sum(given_out) == min(limit, sum(lags))
    assert all(0 <= share <= lag for share, lag in zip(given_out, lags, strict=True))


def test_short_lags_are_served_completely_and_long_ones_share_the_rest() -> None:
    assert divide_evenly([1000, 3, 1000, 2], 25) == [10, 3, 10, 2]
    assert divide_evenly([5, 9, 7], 1) == [0, 1, 0]


SPANS = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 100), st.integers(0, 10_000)),
    min_size=1,
    max_size=6,
)


@given(SPANS, st.integers(1, 12))
def test_a_stream_divided_into_tasks_is_read_completely_and_nothing_twice(
    sizes: list[tuple[int, int, int]], parts: int
) -> None:
    spans, at = [], 0
    for count, gap, size in sizes:
        spans.append(SegmentSpan(at + gap, at + gap + count, size))
        at += gap + count
    ranges = split_spans(spans, parts)
    assert 1 <= len(ranges) <= parts
    assert [start for start, _ in ranges[1:]] == [end for _, end in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (spans[0].start, spans[-1].end)


class _Bytes:
    """An extent of one stored batch, of which only the size is asked."""

    def __init__(self, size: int) -> None:
        row = np.zeros(1, ENTRY)
        row["bytes"] = size
        self.entries = row.tobytes()


def _ranges(sizes: list[int]) -> list[ReadRange]:
    partition = Partition("orders", 0, 0)
    extents: list[Any] = [_Bytes(size) for size in sizes]
    return [ReadRange(partition, n, n + 1, (each,)) for n, each in enumerate(extents)]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.integers(1, 40))
def test_joined_ranges_are_all_read_in_order_by_the_number_of_tasks_asked_for(
    sizes: list[int], tasks: int
) -> None:
    ranges = _ranges(sizes)
    joined = join_ranges(ranges, tasks)
    assert [each for one in joined for each in one] == ranges
    assert len(joined) == min(tasks, len(ranges))
    assert all(joined)


def test_joined_ranges_have_about_the_same_bytes() -> None:
    def joined(sizes: list[int], tasks: int) -> list[list[int]]:
        return [[each.bytes for each in one] for one in join_ranges(_ranges(sizes), tasks)]

    assert joined([50, 50, 50, 50], 2) == [[50, 50], [50, 50]]
    assert joined([100, 10, 10, 80], 2) == [[100], [10, 10, 80]]
    assert joined([10, 10, 80, 100], 2) == [[10, 10, 80], [100]]
    assert joined([900, 10, 10, 10], 3) == [[900], [10, 10], [10]]


def test_tasks_have_about_the_same_bytes() -> None:
    assert split_spans([SegmentSpan(0, 100, 100_000), SegmentSpan(1000, 1100, 300_000)], 4) == [
        (0, 1000), (1000, 1033), (1033, 1066), (1066, 1100),
    ]  # fmt: skip
    assert split_spans([], 3) == []


def test_columns_go_to_spark_and_come_back() -> None:
    records = [
        Record(7, 1000, 1, 2, b"k", {"a": b"1", "b": b""}, b"v"),
        Record(9, 2000, 0, 0, None, None, b""),
    ]
    to_spark = ToSpark(spark_schema(include_headers=True), Partition("orders", 1, 3))
    rows = to_spark(from_records(records))
    assert rows.to_pydict()["op"] == ["delete", "insert"]
    assert rows.to_pydict()["topic"] == ["orders"] * 2
    written = to_append(rows.select(["key", "value", "headers", "timestamp", "op", "mode"]))
    back = written.to_pydict()
    assert (back["op"], back["mode"]) == ([2, 0], [1, 0])
    assert back["headers"] == [[("a", b"1"), ("b", b"")], None]


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pa.array([[{"key": "a", "value": None}]]), "no null as a name or a value"),
        (pa.array([[{"key": None, "value": b"x"}]]), "no null as a name or a value"),
    ],
)
def test_a_header_without_a_name_or_a_value_is_refused(column: Any, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        to_append(
            pa.RecordBatch.from_arrays([pa.array([b"v"]), column], names=["value", "headers"])
        )


def test_a_table_without_values_cannot_be_written() -> None:
    with pytest.raises(InvalidValue, match="value, and any of key"):
        check_write(StructType([]))
