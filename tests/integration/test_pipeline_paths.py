"""Relative paths of writers on Spark, whose workers have working directories of their own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace import Pipeline, readers, writers

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.part("pipelines")]


def test_relative_paths_of_writers_begin_where_the_pipeline_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    tailrace.open("other-hub").close()
    lake = Pipeline("lake", readers.file("in.jsonl"))
    lake.write("db", writers.sql("sqlite:///lake.db"))
    lake.write("files", writers.file("out/"))
    lake.write("own", writers.topic("numbers", create_partitions=1))
    lake.write("others", writers.topic("numbers", hub="other-hub", create_partitions=1))
    with tailrace.open("hub") as hub:
        lake.run(hub, once=True)
        assert {message.data for message in _messages(hub)} == {b'{"n": 1}', b'{"n": 2}'}
    with sqlite3.connect(tmp_path / "lake.db") as database:
        assert database.execute('SELECT n FROM "in" ORDER BY n').fetchall() == [(1,), (2,)]
    [written] = (tmp_path / "out").rglob("*.jsonl")
    assert written.read_text() == '{"n": 1}\n{"n": 2}\n'
    with tailrace.open(tmp_path / "other-hub") as other:
        assert {message.data for message in _messages(other)} >= {b'{"n": 1}', b'{"n": 2}'}


def _messages(hub: tailrace.Hub) -> list[tailrace.Message[Any]]:
    numbers, partition = hub.topic("numbers"), tailrace.Partition("numbers", 0, 0)
    return [m for batch in numbers.batches(0, 0) for m in numbers.messages(partition, batch)]
