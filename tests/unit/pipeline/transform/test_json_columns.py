"""Parsing documents to columns equals decoding them one by one, or is declined."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given as holds_for
from hypothesis import settings
from hypothesis import strategies as some

from tailrace.pipeline.transform.columns import columns_of
from tailrace.pipeline.transform.json_columns import FEW, parse_columns
from tests.support.counts import count

NAMES = some.sampled_from(["id", "name", "at", "ö", "a.b", ""])
SCALARS = (
    some.none()
    | some.booleans()
    | some.integers(-(2**65), 2**65)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.sampled_from([0, 1, 2**53, 2**53 + 1, 0.5, 1e15, 1e22])
    | some.text(max_size=5)
    | some.sampled_from(["2026-01-01", "2026-01-01T00:00:00Z", "12:00", "NaN", "1"])
)
VALUES = some.recursive(
    SCALARS,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TIMES = some.sampled_from(["2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00", "x"])
KINDS = some.sampled_from(
    [
        some.integers(-(2**63), 2**63 - 1),
        some.integers(-9, 9) | some.floats(-1e6, 1e6),
        some.text(max_size=5),
        TIMES,
        some.booleans(),
        some.none(),
        some.lists(TIMES | some.none(), max_size=3),
        some.lists(some.integers(0, 9), max_size=3),
        some.fixed_dictionaries({}, optional={"at": TIMES, "id": some.integers(0, 9)}),
    ]
)


def documents(of: some.SearchStrategy[dict[str, Any]]) -> some.SearchStrategy[list[Any]]:
    return some.lists(of, min_size=FEW, max_size=FEW + 8)


ALIKE = some.dictionaries(NAMES, KINDS, max_size=4).flatmap(
    lambda kinds: documents(some.fixed_dictionaries({}, optional=kinds))
)
UNLIKE = documents(some.dictionaries(NAMES, VALUES, max_size=2))


def values_of(given: list[Any]) -> pa.Array[Any]:
    return pa.array([msgspec.json.encode(each) for each in given], pa.binary())


def by_name(batch: pa.RecordBatch) -> dict[str, tuple[str, list[Any]]]:
    """Return columns, independent of the order of fields."""
    return {
        field.name: (sorted_type(field.type), column.to_pylist())
        for field, column in zip(batch.schema, batch.columns, strict=True)
    }


def sorted_type(kind: pa.DataType) -> str:
    if isinstance(kind, pa.StructType):
        return str(sorted((field.name, sorted_type(field.type)) for field in kind.fields))
    return f"[{sorted_type(kind.value_type)}]" if isinstance(kind, pa.ListType) else str(kind)


@settings(max_examples=count("parsed-batches", test=50, soak=2000))
@holds_for(ALIKE | UNLIKE)
def test_parsed_columns_equal_decoded_documents(given: list[dict[str, Any]]) -> None:
    batch = parse_columns(values_of(given))
    if batch is not None:
        expected = columns_of(given)
        assert by_name(batch) == by_name(expected)
        assert not any(field.metadata for field in expected.schema)


def test_documents_that_are_alike_are_parsed() -> None:
    given = [
        {"id": n, "at": "2026-01-01", "tags": ["2026-01-01"], "who": {"since": "2026-01-01"}}
        for n in range(1000)
    ]
    given[500]["late"] = "2026-01-01T00:00:00Z"
    batch = parse_columns(values_of(given).slice(10))
    assert batch is not None
    assert batch.schema.names == ["id", "at", "tags", "who", "late"]
    assert by_name(batch) == by_name(columns_of(given[10:]))


@pytest.mark.parametrize(
    "bad",
    [
        b"", b" ", b"[1]", b"{}{}", b'{"a":NaN}', b'{"a":Infinity}', b'{"a":"\xff"}', b'{"\xff":1}',
        b'{"a":"x\ny"}', b'{"a":18446744073709551616}', b'{"a":1,"a":2}', b'{"a":[{}', b'{"a":"}',
        b'{"a":"\\ud800"}', b"\xef\xbb\xbf{}", b'{"a":1,}', b'{"a":1e999}',
        b'{"a":9007199254740993.5}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [0, 3, 49])
def test_ambiguous_documents_are_not_parsed(bad: bytes, at: int) -> None:
    values = [b'{"a":1}'] * 50
    values[at] = bad
    assert parse_columns(pa.array(values, pa.binary())) is None


def test_values_that_are_documents_only_together_are_not_parsed() -> None:
    values = [b'{"a":1}'] * 50
    values[10:12] = [b'{"a":"}', b'{"}']
    values[20] = b'{"a":1}{"a":2}'
    assert parse_columns(pa.array(values, pa.binary())) is None
    values[10:12] = [b'{"a":[1,{}', b"{},2]}"]
    assert parse_columns(pa.array(values, pa.binary())) is None
