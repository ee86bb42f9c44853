"""Filters that the Spark data source applies itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from tailrace.message import Partition
from tailrace.spark.reading.filters import push_filters

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def allowed(*filters: Filter) -> list[int]:
    """The partitions of ten that filters let pass."""
    pushed, rest = push_filters(filters)
    assert rest == []
    return [number for number in range(10) if pushed.allows(Partition("orders", 0, number))]


@pytest.mark.parametrize(
    ("filters", "partitions"),
    [
        ([EqualTo(("partition",), 3)], [3]),
        ([EqualNullSafe(("partition",), 3)], [3]),
        ([In(("partition",), (3, 5, None))], [3, 5]),
        ([GreaterThan(("partition",), 7)], [8, 9]),
        ([GreaterThanOrEqual(("partition",), 8), LessThan(("partition",), 9)], [8]),
        ([LessThanOrEqual(("partition",), 1)], [0, 1]),
        ([In(("partition",), (3, 5)), In(("partition",), (5, 6))], [5]),
        ([In(("partition",), (3, 5)), LessThan(("partition",), 5)], [3]),
        ([IsNotNull(("partition",)), EqualTo(("storage",), 1)], []),
        ([EqualTo(("topic",), "payments")], []),
        ([EqualTo(("topic",), "orders"), EqualTo(("partition",), 0)], [0]),
    ],
)
def test_filters_choose_partitions(filters: list[Filter], partitions: list[int]) -> None:
    assert allowed(*filters) == partitions


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("partition",), None),
        Not(EqualTo(("partition",), 3)),
        GreaterThan(("topic",), "a"),
        StringContains(("topic",), "a"),
        EqualTo(("timestamp",), NOON.replace(tzinfo=None)),
    ],
)
def test_other_filters_stay_with_spark(given: Filter) -> None:
    pushed, rest = push_filters([given])
    assert rest == [given]
    assert not pushed.conditions


def test_rows_outside_of_times_and_offsets_are_dropped() -> None:
    times: pa.Array[Any] = pa.array(
        [NOON.replace(second=second) for second in range(5)], pa.timestamp("us", "UTC")
    )
    batch = pa.RecordBatch.from_arrays([pa.array(range(5)), times], names=["offset", "timestamp"])
    late, _ = push_filters([GreaterThan(("timestamp",), NOON.replace(second=2))])
    assert late.rows(batch)["offset"].to_pylist() == [3, 4]
    some, _ = push_filters([In(("offset",), (0, 3, 9)), LessThan(("offset",), 3)])
    assert some.rows(batch)["offset"].to_pylist() == [0]
    moment, _ = push_filters([EqualTo(("timestamp",), NOON.replace(second=1))])
    assert moment.rows(batch)["offset"].to_pylist() == [1]
