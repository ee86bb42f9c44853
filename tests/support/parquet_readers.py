"""Reads a directory of Parquet files with each reader that people use, with its default options."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq

META = ("_op", "_offset", "_timestamp", "_namespace")


def _pandas(directory: Path) -> list[dict[str, Any]]:
    rows: Any = pd.read_parquet(directory).to_dict("records")
    return [dict(row) for row in rows]


def _pyarrow(directory: Path) -> list[dict[str, Any]]:
    return pq.read_table(directory).to_pylist()


def _dataset(directory: Path) -> list[dict[str, Any]]:
    return ds.dataset(directory, format="parquet").to_table().to_pylist()


def _polars(directory: Path) -> list[dict[str, Any]]:
    return pl.read_parquet(directory).to_dicts()


def _polars_glob(directory: Path) -> list[dict[str, Any]]:
    return pl.scan_parquet(f"{directory}/**/*.parquet").collect().to_dicts()


def _duckdb(directory: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT * FROM '{directory}/**/*.parquet'")
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "pandas": _pandas,
    "pyarrow": _pyarrow,
    "dataset": _dataset,
    "polars": _polars,
    "polars glob": _polars_glob,
    "duckdb": _duckdb,
}


def read_all(directory: Path, readers: Iterable[str] = READERS) -> dict[str, list[dict[str, Any]]]:
    """Return the documents that each reader finds in a directory, without fields that are null."""
    return {name: [_document(row) for row in READERS[name](directory)] for name in readers}


def check_documents(
    directory: Path, expected: list[dict[str, Any]], readers: Iterable[str] = READERS
) -> None:
    """Check that each reader finds exactly these documents, each with an own `id`."""
    wanted = {each["id"]: each for each in expected}
    assert len(wanted) == len(expected)
    for reader, found in read_all(directory, readers).items():
        rows = {row["id"]: row for row in found}
        assert len(rows) == len(found), f"{reader} finds a row twice"
        assert rows.keys() == wanted.keys(), f"{reader} finds {rows.keys() ^ wanted.keys()}"
        exact = reader != "pandas"
        for number, document in wanted.items():
            row = rows[number]
            names = document.keys() | row.keys()
            different = {n for n in names if not _is_same(document.get(n), row.get(n), exact)}
            assert not different, f"{reader}: {row} for {document}"


def _document(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: _plain(value) for name, value in row.items() if name not in META}
    return {name: value for name, value in plain.items() if value is not None}


def _plain(value: Any) -> Any:
    """Return a value of a reader as JSON has it; null for the NaN of pandas."""
    if isinstance(value, np.ndarray | list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    missing = value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value))
    return None if missing else value


def _is_same(written: Any, read: Any, exact: bool) -> bool:
    """True if a value was read as it was written, or as its column shows it.

    A text column shows other values as JSON; a numeric one shows text that is a number as a number.
    Objects have all fields of their column, and null for those that they lack. pandas shows
    integers with nulls between them as floats, so with pandas, large ones are not exact.
    """
    if written is None or read is None:
        return written is read or (not written and isinstance(written, dict) and read == {})
    if isinstance(read, str):
        return read == (written if isinstance(written, str) else _json(written))
    if isinstance(written, str):
        return _is_same(msgspec.json.decode(written), read, exact)
    if isinstance(read, dict):
        names = read.keys() | written.keys()
        return all(_is_same(written.get(n), read.get(n), exact) for n in names)
    if isinstance(read, list):
        return len(read) == len(written) and all(
            _is_same(one, other, exact) for one, other in zip(written, read, strict=True)
        )
    return bool(written == read if exact else float(written) == float(read))


def _json(value: Any) -> str:
    return msgspec.json.encode(_without_nulls(value)).decode()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
