"""Parquet: values as JSON has them, going on at any row, files that are not whole yet."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.readers import parquet as parquet_module
from tailrace.readers.files import OpenFile
from tailrace.readers.lines import Ending
from tailrace.readers.parquet import Parquet
from tailrace.readers.place import Place
from tailrace.source.reader import Until
from tests.unit.readers.following import Followed

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


def read(path: Path, place: Place, identity: tuple[str, ...] = ()) -> list[Any]:
    """The values of all pieces from a place on, with the place behind each."""
    file, format = OpenFile(str(path)), Parquet(identity)
    found = []
    while (piece := format.read(file, place, None, Ending.NOW)) is not None:
        place = piece.place
        values: list[Any] = piece.values.to_pylist()
        found.append(([msgspec.json.decode(value) for value in values], place))
    file.close()
    return found


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_as_json_has_it(name: str, path: Path) -> None:
    kind, value, expected = VALUES[name]
    pq.write_table(pa.table({"v": pa.array([value, None], kind)}), path)
    assert [row for rows, _ in read(path, Place("x", 1, 2)) for row in rows] == [
        {"v": expected},
        {"v": None},
    ]


def test_reading_goes_on_at_any_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_module, "_ROWS", 2)
    write(path, *range(10))
    places = [Place("x", 1, 2), *(place for _, place in read(path, Place("x", 1, 2)))]
    for place in places:
        rows = [row["n"] for found, _ in read(path, place) for row in found]
        assert rows == list(range(place.offset, 10))
    assert len(places) > 5


def test_rows_without_their_identity_are_bad(path: Path) -> None:
    write(path, 1)
    file = OpenFile(str(path))
    piece = Parquet(("id",)).read(file, Place("x", 1, 2), None, Ending.NOW)
    file.close()
    assert piece is not None
    assert (len(piece.values), [bad.line for bad in piece.bad]) == (0, [1])


def test_new_and_replaced_files_are_read_whole(path: Path) -> None:
    write(path, 1, 2, 3, 4)
    with Followed(str(path.parent / "*.parquet")) as source:
        assert source.rows() == [1, 2, 3, 4]
        write(path.with_name("y.parquet"), 5)
        assert source.rows() == [1, 2, 3, 4, 5]
        write(path, 6, 7)
        assert source.rows() == [1, 2, 3, 4, 5, 6, 7]
        source.begin(Until.NOW)
        assert source.rows() == [1, 2, 3, 4, 5, 6, 7]
        assert source.bad() == []


def test_a_file_is_read_when_it_is_whole(path: Path) -> None:
    write(path.with_name("whole"), 1, 2)
    data = path.with_name("whole").read_bytes()
    with Followed(str(path)) as source:
        source.settle()
        with path.open("wb") as file:
            for start in range(0, len(data), 300):
                file.write(data[start : start + 300])
                file.flush()
                source.step()
        assert source.rows() == [1, 2]
        assert source.bad() == []


def test_a_file_that_never_becomes_parquet_is_a_dead_letter(path: Path) -> None:
    path.write_bytes(b"PAR1 but no more")
    with Followed(str(path)) as source:
        [(where, error, _)] = source.bad()
        assert where == f"{path}:1"
        assert "not Parquet" in error
        write(path, 1)
        assert source.rows() == [1]
