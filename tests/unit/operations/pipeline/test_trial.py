"""A trial of a pipeline: rows as its writers would get them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace import functions as fn
from tailrace import writers
from tailrace.errors import ConfigError
from tailrace.operations.pipeline.trial import try_pipeline
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import RecordingWriter


def test_a_trial_shows_rows_as_writers_would_get_them_and_writes_nothing(tmp_path: Path) -> None:
    lake = tailrace.Pipeline("lake", CountingReader(rows=3))
    writer = RecordingWriter(str(tmp_path))
    lake.write("crm", writer, functions=[fn.rename({"n": "number"})])
    lake.write(
        "sql",
        writer,
        functions=[fn.rename({"n": "m"}), fn.sql(select="m * 2 AS d", schema="m LONG")],
    )
    lake.write("none", writer, namespace="other")
    trial = try_pipeline(lake.definition)
    crm, sql, none = trial.writers
    assert [row.document for row in crm.rows] == [{"number": 0}]
    assert ([row.document for row in sql.rows], sql.before_sql) == ([{"m": 0}], True)
    assert (none.rows, none.before_sql) == ((), False)
    assert list(tmp_path.iterdir()) == []


def test_a_trial_names_every_sink_that_cannot_be_reached(tmp_path: Path) -> None:
    lake = tailrace.Pipeline("lake", CountingReader(rows=3))
    for name in ("one", "two"):
        path = tmp_path / "missing" / name
        lake.write(name, writers.sql(f"sqlite:///{path}/{name}.db"), engine="direct")
    with pytest.raises(ConfigError, match=r"writer\.one: .*writer\.two: "):
        try_pipeline(lake.definition)
