"""Parquet: given and inferred types, deletes, and refused values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace import writers
from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.log.record import Record
from tailrace.message import Op
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Writer
from tailrace.testing import MemoryBackend
from tests.support.fitting_cases import CASES, NOT_NESTED, PARTS, REFUSED
from tests.unit.writers.contract import (
    Driver,
    Seen,
    WriterContract,
    record,
    rows,
    rows_of,
)
from tests.unit.writers.files.test_json_lines import put_store, visible


class TestParquet(WriterContract):
    """Parquet files in a local directory."""

    @pytest.fixture
    def writer(self, tmp_path: Path) -> Writer:
        return writers.parquet(str(tmp_path / "out"))

    @pytest.fixture
    def seen(self, tmp_path: Path) -> Seen:
        return lambda: [
            row for path in visible(tmp_path / "out") for row in pq.read_table(path).to_pylist()
        ]


class TestParquetElsewhere(TestParquet):
    """The same, in a file system that the writer takes for an object store."""

    @pytest.fixture
    def writer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
        put_store(tmp_path, monkeypatch)
        return writers.parquet("s3://bucket/out")


@pytest.fixture
def hub() -> Hub:
    return Hub.from_backend(MemoryBackend())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def driver(hub: Hub, out: Path, **options: Any) -> Driver:
    return Driver(hub, writers.parquet(str(out), **options))


def written(hub: Hub, out: Path, documents: list[dict[str, Any]], **options: Any) -> pa.Table:
    """Documents without meta columns, each in a batch of its own, read back from their file."""
    d = driver(hub, out, meta=False, **options)
    session = d.writer.open(d.attempt(0, len(documents)))
    for offset, document in enumerate(documents):
        given = rows_of([record(offset, document)])
        assert not session.write(given, Offsets(offset, offset + 1))
    d.publish(session.finish())
    [path] = visible(out)
    return pq.read_table(path)


def together(hub: Hub, out: Path, documents: list[dict[str, Any]], **options: Any) -> pa.Table:
    """The same, in one batch."""
    given = rows_of(record(offset, document) for offset, document in enumerate(documents))
    assert not driver(hub, out, meta=False, **options).write(given, 0, len(documents))
    [path] = visible(out)
    return pq.read_table(path)


NESTED = pa.struct([("b", pa.int64()), ("c", pa.list_(pa.string()))])
FOUND = [
    ([1, None, 2**62], pa.int64(), [1, None, 2**62]),
    ([1, 2.5], pa.float64(), [1.0, 2.5]),
    ([True, None], pa.bool_(), [True, None]),
    (["x", "2026-01-01T00:00:00Z"], pa.string(), ["x", "2026-01-01T00:00:00Z"]),
    (["2026-01-01", "2026-01-02"], pa.string(), ["2026-01-01", "2026-01-02"]),
    ([[1], [], [2.5]], pa.list_(pa.float64()), [[1.0], [], [2.5]]),
    ([[], []], pa.list_(pa.string()), [[], []]),
    ([{"b": 1}, {"c": ["x"]}], NESTED, [{"b": 1, "c": None}, {"b": None, "c": ["x"]}]),
    (["x", 1, {"b": None}, True], pa.string(), ["x", "1", "{}", "true"]),
    ([2**63, 1], pa.string(), ["9223372036854775808", "1"]),
    ([[1, "x"], [2]], pa.string(), ['[1,"x"]', "[2]"]),
    ([{}, {}], pa.string(), ["{}", "{}"]),
    ([{}, None, {"b": 1}], pa.struct([("b", pa.int64())]), [{"b": None}, None, {"b": 1}]),
    ([7, "8", "-1"], pa.int64(), [7, 8, -1]),
    ([0.5, "8.25", "Infinity"], pa.float64(), [0.5, 8.25, float("inf")]),
    ([True, 0, "true"], pa.bool_(), [True, False, True]),
]


@pytest.mark.parametrize(("values", "kind", "expected"), FOUND, ids=[str(f[0]) for f in FOUND])
@pytest.mark.parametrize("write", [written, together])
def test_a_column_has_the_type_of_its_values(
    hub: Hub, out: Path, values: list[Any], kind: pa.DataType, expected: list[Any], write: Any
) -> None:
    table = write(hub, out, [{"a": value} for value in values])
    assert table.schema.field("a").type.equals(kind), table.schema
    assert table["a"].to_pylist() == expected


REFUSED_VALUES = [
    ([1, "x"], 1, '"x" is text, and the column holds integers'),
    ([1, "007"], 1, '"007" is text'),
    ([1, True, None], 1, "true is true or false, and the column holds integers"),
    ([0.5, "n/a"], 1, '"n/a" is text, and the column holds numbers'),
    ([{"b": 1}, [1]], 1, "[1] is a list, and the column holds objects"),
    ([{"b": 1}, {"b": "x"}], 1, "in .b"),
    ([[1], [2, "x"]], 1, "in [1]"),
    ([[{"b": [1]}], [{"b": [2, "x"]}]], 1, "in [0].b[1]"),
    ([1, 2**63], 1, "too large"),
    ([2**53 + 1, 0.5], 1, "beyond 2^53"),
    ([0.5, 2**53 + 1], 1, "would lose digits"),
    ([True, 2], 1, "2 is a number, and the column holds true and false"),
]


@pytest.mark.parametrize(
    ("values", "bad", "told"), REFUSED_VALUES, ids=[str(r[0]) for r in REFUSED_VALUES]
)
@pytest.mark.parametrize("size", [1, 10])
def test_a_value_that_its_column_cannot_hold_is_refused_in_batches_of_any_size(
    hub: Hub, out: Path, values: list[Any], bad: int, told: str, size: int
) -> None:
    d = driver(hub, out, meta=False)
    given = [record(offset, {"id": offset, "a": value}) for offset, value in enumerate(values)]
    session = d.writer.open(d.attempt(0, len(values)))
    refused: list[Any] = []
    for start in range(0, len(given), size):
        some = given[start : start + size]
        refused += session.write(rows_of(some), Offsets(start, start + len(some)))
    d.publish(session.finish())
    [failure] = refused
    assert failure.offset == bad
    assert told in failure.error
    assert "'a'" in failure.error
    seen = [row["id"] for path in visible(out) for row in pq.read_table(path).to_pylist()]
    assert seen == [n for n in range(len(values)) if n != bad]


@pytest.mark.parametrize(("first", "second", "kept"), CASES.values(), ids=CASES)
def test_a_column_holds_what_a_column_of_a_database_holds(
    hub: Hub, out: Path, first: Any, second: Any, kept: Any
) -> None:
    d = driver(hub, out, meta=False)
    assert not d.write(rows_of([record(0, {"id": 1, "v": first})]), 0, 1)
    refused = d.write(rows_of([record(1, {"id": 2, "v": second})]), 1, 2)
    assert [each.offset for each in refused] == ([1] if kept is REFUSED else [])
    rows = [row for path in visible(out) for row in pq.read_table(path).to_pylist()]
    found = {row["id"]: row.get("v") for row in rows}
    assert found == ({1: first} if kept is REFUSED else {1: first, 2: kept})


@pytest.mark.parametrize(("first", "second"), (NOT_NESTED | PARTS).values(), ids=NOT_NESTED | PARTS)
def test_a_column_of_objects_or_arrays_refuses_other_values_and_parts_of_other_types(
    hub: Hub, out: Path, first: Any, second: Any
) -> None:
    d = driver(hub, out, meta=False)
    assert not d.write(rows_of([record(0, {"id": 1, "v": first})]), 0, 1)
    (refused,) = d.write(rows_of([record(1, {"id": 2, "v": second})]), 1, 2)
    assert refused.offset == 1


def test_a_column_of_mixed_values_is_text_in_the_whole_file(hub: Hub, out: Path) -> None:
    d = driver(hub, out, meta=False)
    session = d.writer.open(d.attempt(0, 4))
    session.write(rows_of([record(0, {"a": "x"})]), Offsets(0, 1))
    session.write(rows_of([record(1, {"a": 1}), record(2, {"a": "y"})]), Offsets(1, 3))
    session.write(rows_of([record(3, {"b": 1})]), Offsets(3, 4))
    d.publish(session.finish())
    [path] = visible(out)
    assert pq.read_table(path)["a"].to_pylist() == ["x", "1", "y", None]


def test_a_field_that_is_absent_is_null_and_one_that_is_only_null_has_no_column(
    hub: Hub, out: Path
) -> None:
    table = written(hub, out, [{"a": 1, "n": None}, {"b": "x"}])
    assert table.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_a_row_has_operation_time_and_position(hub: Hub, out: Path) -> None:
    given = [record(5), record(6, op=Op.DELETE), record(7, {"id": 7, "new": 1}, op=Op.UPDATE)]
    assert not driver(hub, out).write(rows_of(given), 5, 8)
    [path] = visible(out)
    table = pq.read_table(path)
    assert table.column_names[-4:] == ["_op", "_offset", "_timestamp", "_namespace"]
    assert table["_op"].to_pylist() == ["insert", "delete", "update"]
    assert table["_offset"].to_pylist() == [5, 6, 7]
    assert table["_timestamp"][0].as_py() == dt.datetime(2026, 1, 1, 0, 0, 0, 5000, dt.UTC)
    assert table["_namespace"].to_pylist() == ["orders"] * 3


def test_a_delete_is_refused_without_meta_columns(hub: Hub, out: Path) -> None:
    given = rows_of([record(0), record(1, op=Op.DELETE)])
    [failure] = driver(hub, out, meta=False).write(given, 0, 2)
    assert failure.offset == 1
    assert "meta = true" in failure.error


def test_a_field_with_the_name_of_a_meta_column_is_refused(hub: Hub, out: Path) -> None:
    given = rows_of([record(0), record(1, {"_op": "x"})])
    [failure] = driver(hub, out).write(given, 0, 2)
    assert failure.offset == 1
    assert "'_op'" in failure.error


def test_each_namespace_has_its_own_files_and_schema(hub: Hub, out: Path) -> None:
    given: list[Record] = []
    for offset in range(6):
        kind = "users" if offset % 2 else "orders"
        given.append(record(offset, {kind: offset}, namespace=kind))
    driver(hub, out, meta=False).write(rows_of(given), 0, 6)
    tables = {path.parent.name: pq.read_table(path).to_pydict() for path in visible(out)}
    assert tables == {"orders": {"orders": [0, 2, 4]}, "users": {"users": [1, 3, 5]}}


SCHEMA = {
    "id": "int32",
    "day": "date",
    "at": "timestamp",
    "price": "decimal(10, 2)",
    "data": "binary",
    "any": "json",
    "lines": "list<struct<sku: string, count: int64, at: date>>",
    "absent": "double",
}


def test_a_schema_decides_types_and_is_in_every_file(hub: Hub, out: Path) -> None:
    document = {
        "id": 1,
        "day": "2026-02-03",
        "at": "2026-02-03T04:05:06.789+02:00",
        "price": "12.50",
        "data": "aGk=",
        "any": {"x": [1]},
        "lines": [{"sku": "a", "count": 2, "at": "2026-01-01"}, {"sku": None}],
        "more": 5,
    }
    table = written(hub, out, [document, {"id": 2, "any": "x"}], schema=SCHEMA)
    assert table.column_names == [*SCHEMA, "more"]
    lines = pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int64()), ("at", pa.date32())]))
    assert [str(table.schema.field(name).type) for name in ("id", "at", "price", "absent")] == [
        "int32", "timestamp[us, tz=UTC]", "decimal128(10, 2)", "double",
    ]  # fmt: skip
    assert table.schema.field("lines").type.equals(lines)
    assert table.to_pylist()[0] == {
        "id": 1,
        "day": dt.date(2026, 2, 3),
        "at": dt.datetime(2026, 2, 3, 2, 5, 6, 789000, dt.UTC),
        "price": Decimal("12.50"),
        "data": b"hi",
        "any": '{"x":[1]}',
        "lines": [
            {"sku": "a", "count": 2, "at": dt.date(2026, 1, 1)},
            {"sku": None, "count": None, "at": None},
        ],
        "absent": None,
        "more": 5,
    }
    assert table.to_pylist()[1]["any"] == '"x"'


@pytest.mark.parametrize(
    ("kind", "bad", "told"),
    [
        ("int64", "x", "Expected `int"),
        ("int64", 1.5, "Expected `int"),
        ("int64", True, "Expected `int"),
        ("int8", 300, "<= 127"),
        ("date", "tomorrow", "date"),
        ("timestamp", "2026-13-01T00:00:00Z", "datetime"),
        ("decimal(3, 1)", "123.45", "Decimal"),
        ("list<int64>", [1, "x"], "in [1]"),
        ("struct<b: int64>", {"b": "x"}, "in .b"),
    ],
)
def test_values_that_do_not_fit_are_named_and_the_others_are_written(
    hub: Hub, out: Path, kind: str, bad: Any, told: str
) -> None:
    given = [record(n, {"id": n, "a": bad if n in (2, 7) else None}) for n in range(10)]
    d = driver(hub, out, schema={"a": kind}, meta=False)
    failures = d.write(rows_of(given), 0, 10)
    assert [failure.offset for failure in failures] == [2, 7]
    assert "'a'" in failures[0].error
    assert told in failures[0].error
    seen = [n for path in visible(out) for n in pq.read_table(path)["id"].to_pylist()]
    assert seen == [0, 1, 3, 4, 5, 6, 8, 9]
    assert d.applied() == seen


@pytest.mark.parametrize(
    "kind", ["", "int", "list<", "list<int64", "list<json>", "struct<a int64>", "decimal(x, 1)",
             "decimal(99, 1)", "int64 int64", "struct<>"]
)  # fmt: skip
def test_an_unknown_type_is_refused(kind: str) -> None:
    with pytest.raises(InvalidValue, match="decimal"):
        writers.parquet("out", schema={"a": kind})


def test_a_schema_may_not_take_the_name_of_a_meta_column() -> None:
    with pytest.raises(InvalidValue, match="_op"):
        writers.parquet("out", schema={"_op": "string"})
    assert writers.parquet("out", schema={"_op": "string"}, meta=False)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_a_file_has_the_requested_compression(hub: Hub, out: Path, compression: str) -> None:
    driver(hub, out, compression=compression).write(rows(0, 3), 0, 3)
    [path] = visible(out)
    found = pq.read_metadata(path).row_group(0).column(0).compression
    assert found.lower() == {"none": "uncompressed"}.get(compression, compression)


def test_a_python_value_without_a_parquet_type_is_named(hub: Hub, out: Path) -> None:
    given = rows(0, 3).with_documents([{"a": "x"}, {"a": "\ud800"}, {"a": object()}])
    failures = driver(hub, out).write(given, 0, 3)
    assert [failure.offset for failure in failures] == [1, 2]


@pytest.mark.parametrize("bad", [b"no json", b"[1]", b'{"a":"\xff"}', b'{"a":1}{"a":2}'])
def test_a_record_that_is_not_a_document_is_named_and_the_others_are_written(
    hub: Hub, out: Path, bad: bytes
) -> None:
    d = driver(hub, out)
    given = [record(n, bad if n in (3, 4, 9) else None) for n in range(10)]
    assert [failure.offset for failure in d.write(rows_of(given), 0, 10)] == [3, 4, 9]
    assert d.applied() == [0, 1, 2, 5, 6, 7, 8]
