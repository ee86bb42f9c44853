"""Parquet: values as JSON types, resuming at any row, incomplete files."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import OpenFile
from tailrace.readers.file.formats import parquet as parquet_module
from tailrace.readers.file.formats.format import FileEnd
from tailrace.readers.file.formats.parquet import ParquetFormat
from tailrace.source.reader import Until
from tests.unit.readers.file.followed_files import FollowedFiles

NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=dt.UTC)
VALUES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "int": (pa.int64(), -7, -7),
    "unsigned": (pa.uint64(), 2**64 - 1, 2**64 - 1),
    "float": (pa.float64(), 1.5, 1.5),
    "nan": (pa.float64(), float("nan"), "NaN"),
    "infinity": (pa.float32(), float("inf"), "Infinity"),
    "minus infinity": (pa.float64(), float("-inf"), "-Infinity"),
    "null": (pa.string(), None, None),
    "text": (pa.string(), "é", "é"),
    "bool": (pa.bool_(), True, True),
    "decimal": (pa.decimal128(10, 2), decimal.Decimal("1.10"), "1.10"),
    "bytes": (pa.binary(), b"\x00\xff", "AP8="),
    "instant": (pa.timestamp("us", "UTC"), NOON, "2026-01-02T12:00:00.000005Z"),
    "whole second": (pa.timestamp("s", "UTC"), NOON.replace(microsecond=0),
                     "2026-01-02T12:00:00.000000Z"),
    "nanoseconds": (pa.timestamp("ns", "UTC"), NOON, "2026-01-02T12:00:00.000005Z"),
    "elsewhere": (pa.timestamp("us", "Asia/Tokyo"), NOON, "2026-01-02T21:00:00.000005+09:00"),
    "local": (pa.timestamp("us"), NOON.replace(tzinfo=None), "2026-01-02T12:00:00.000005"),
    "date": (pa.date32(), NOON.date(), "2026-01-02"),
    "list": (pa.list_(pa.float64()), [1.0, float("nan")], [1.0, "NaN"]),
    "struct": (pa.struct([("at", pa.timestamp("us", "UTC"))]), {"at": NOON},
               {"at": "2026-01-02T12:00:00.000005Z"}),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)], [["a", 1]]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), "x", "x"),
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.parquet"


def write(path: Path, *numbers: int, row_group_size: int = 3) -> None:
    other = path.with_name(".new")
    pq.write_table(pa.table({"n": list(numbers)}), other, row_group_size=row_group_size)
    other.replace(path)


def read(path: Path, position: FilePosition, identity: tuple[str, ...] = ()) -> list[Any]:
    """Read to the end: the values of each chunk, with the position after it."""
    file, format = OpenFile(str(path)), ParquetFormat(identity)
    found = []
    while (chunk := format.read(file, position, None, FileEnd.BOUNDED)) is not None:
        position = chunk.position
        values: list[Any] = chunk.values.to_pylist()
        found.append(([msgspec.json.decode(value) for value in values], position))
    file.close()
    return found


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_converted_to_its_json_type(name: str, path: Path) -> None:
    kind, value, expected = VALUES[name]
    pq.write_table(pa.table({"v": pa.array([value, None], kind)}), path)
    assert [row for rows, _ in read(path, FilePosition("x", 1, 2)) for row in rows] == [
        {"v": expected},
        {"v": None},
    ]


def test_reading_continues_at_any_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_module, "_ROWS", 2)
    write(path, *range(10))
    places = [
        FilePosition("x", 1, 2),
        *(position for _, position in read(path, FilePosition("x", 1, 2))),
    ]
    for position in places:
        rows = [row["n"] for found, _ in read(path, position) for row in found]
        assert rows == list(range(position.offset, 10))
    assert len(places) > 5


def test_rows_without_their_identity_are_bad(path: Path) -> None:
    write(path, 1)
    file = OpenFile(str(path))
    chunk = ParquetFormat(("id",)).read(file, FilePosition("x", 1, 2), None, FileEnd.BOUNDED)
    file.close()
    assert chunk is not None
    assert (len(chunk.values), [bad.line for bad in chunk.bad]) == (0, [1])


def test_new_and_replaced_files_are_read_whole(path: Path) -> None:
    write(path, 1, 2, 3, 4)
    with FollowedFiles(str(path.parent / "*.parquet")) as source:
        assert source.rows() == [1, 2, 3, 4]
        write(path.with_name("y.parquet"), 5)
        assert source.rows() == [1, 2, 3, 4, 5]
        write(path, 6, 7)
        assert source.rows() == [1, 2, 3, 4, 5, 6, 7]
        source.begin(Until.NOW)
        assert source.rows() == [1, 2, 3, 4, 5, 6, 7]
        assert source.bad() == []


def test_a_file_is_read_when_it_is_complete(path: Path) -> None:
    write(path.with_name("whole"), 1, 2)
    data = path.with_name("whole").read_bytes()
    with FollowedFiles(str(path)) as source:
        source.drain()
        with path.open("wb") as file:
            for start in range(0, len(data), 300):
                file.write(data[start : start + 300])
                file.flush()
                source.step()
        assert source.rows() == [1, 2]
        assert source.bad() == []


def test_a_file_that_never_becomes_parquet_is_a_dead_letter(path: Path) -> None:
    path.write_bytes(b"PAR1 but no more")
    with FollowedFiles(str(path)) as source:
        [(where, error, _)] = source.bad()
        assert where == f"{path}:1"
        assert "not Parquet" in error
        write(path, 1)
        assert source.rows() == [1]
