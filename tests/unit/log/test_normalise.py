"""Users' batches: accepted columns, default columns, and refusals by name."""

from __future__ import annotations

import datetime
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.errors import InvalidValue, MessageTooLarge
from tailrace.log.columns import SCHEMA, normalise, records_of
from tailrace.log.record import Record

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(2),
        pa.dictionary(pa.int32(), pa.string()),
    ],
)
def test_keys_and_values_may_be_of_any_binary_or_text_type(kind: pa.DataType) -> None:
    text = pa.array(["k1", "k2"], pa.string()).cast(pa.binary()).cast(kind)
    batch = normalise(pa.record_batch({"value": text, "key": text}), NOW_MS)
    assert batch.schema == SCHEMA
    assert records_of(batch) == [Record(0, NOW_MS, 0, 0, key, None, key) for key in (b"k1", b"k2")]


def test_all_columns_may_be_given_in_any_order() -> None:
    given_columns = {
        "op": pa.array([2], pa.int64()),
        "headers": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
        "value": pa.array([b"v"]),
        "mode": pa.array([1], pa.int8()),
        "timestamp": pa.array([5], pa.int64()),
        "key": pa.array([None], pa.null()),
    }
    batch = normalise(pa.record_batch(given_columns), NOW_MS)
    assert records_of(batch) == [Record(0, 5, 1, 2, None, {"a": b"b"}, b"v")]


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.timestamp("ms", "UTC"),
        pa.timestamp("us", "Europe/Berlin"),
        pa.timestamp("ns"),
    ],
)
def test_timestamps_may_be_of_any_unit_and_zone_and_null_is_now(kind: pa.DataType) -> None:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    times = pa.array([moment, None], pa.timestamp("us", "UTC")).cast(kind)
    batch = normalise(pa.record_batch({"value": [b"a", b"b"], "timestamp": times}), NOW_MS)
    expected = [int(moment.timestamp()) * 1000, NOW_MS]
    assert [row.timestamp for row in records_of(batch)] == expected


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": pa.array([b"k"])}, "valid: value"),
        ({"value": pa.array([b"v"]), "kee": pa.array([b"k"])}, "column is 'kee'"),
        ({"value": pa.array([1])}, "type of column 'value' is 'int64'.*large_binary"),
        ({"value": pa.array([b"v"]), "key": pa.array([1.5])}, "type of column 'key' is 'double'"),
        ({"value": pa.array([None], pa.binary())}, "'value' in row 0"),
        ({"value": pa.nulls(1)}, "'value' in row 0"),
        ({"value": pa.array([b"v"]), "mode": pa.array(["copy"])}, "type of column 'mode'"),
        ({"value": pa.array([b"v"]), "mode": pa.array([None], pa.uint8())}, "'mode' in row 0"),
        ({"value": pa.array([b"v"]), "op": pa.array([-1])}, "column 'op'.*0 insert, 1 update"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([1.5])}, "type of column 'timestamp'"),
        (
            {"value": pa.array([b"v"]), "timestamp": pa.array([2**62]).cast(pa.timestamp("s"))},
            "column 'timestamp'.*1970 to 9999",
        ),
        ({"value": pa.array([b"v"]), "headers": pa.array([b"h"])}, "type of column 'headers'"),
    ],
)
def test_a_column_that_does_not_fit_is_named(columns: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        normalise(pa.record_batch(columns), NOW_MS)


def test_a_column_given_twice_is_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([b"v"])] * 2, names=["value", "value"])
    with pytest.raises(InvalidValue, match="each once"):
        normalise(twice, NOW_MS)


def test_more_bytes_than_columns_can_hold_are_refused_and_not_cut(tmp_path: Path) -> None:
    size = 3 << 30
    with (tmp_path / "sparse").open("wb+") as file:
        file.truncate(size)
        values = pa.py_buffer(memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)))
    offsets = pa.py_buffer(np.array([0, size], np.int64).data)
    huge = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, values])
    with pytest.raises(MessageTooLarge):
        normalise(pa.record_batch({"value": huge}), NOW_MS)
