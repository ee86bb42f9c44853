"""A pipeline that runs in another hub, over the sinks it has written to from the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

import tailrace
from tailrace import writers
from tailrace.errors import ConfigError
from tailrace.hub.hub import Hub
from tailrace.log.schema import records_of
from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.writer import Writer
from tailrace.pipeline.writing import writer_ledger
from tailrace.pipeline.writing.writer_ledger import WriterName
from tailrace.testing import MemoryBackend
from tests.support.pipelines.counting_reader import CountingReader

Seen: TypeAlias = "Callable[[], list[int]]"


def lake(writer: Writer, rows: int, name: str = "lake", **options: Any) -> Pipeline:
    made = Pipeline(name, CountingReader(rows))
    made.write("out", writer, engine="direct", **options)
    return made


def a_hub(name: str) -> Hub:
    return Hub.from_backend(MemoryBackend(name))


def _file(path: Path) -> tuple[Writer, Seen]:
    def seen() -> list[int]:
        files = (path / "out").rglob("[!_]*.jsonl")
        lines = (line for file in files for line in file.read_bytes().splitlines())
        return sorted(msgspec.json.decode(line)["n"] for line in lines)

    return writers.file(str(path / "out")), seen


def _parquet(path: Path) -> tuple[Writer, Seen]:
    def seen() -> list[int]:
        files = (path / "out").rglob("[!_]*.parquet")
        rows: list[Any] = [row for file in files for row in pq.read_table(file).to_pylist()]
        return sorted(row["n"] for row in rows)

    return writers.parquet(str(path / "out")), seen


def _sql(path: Path) -> tuple[Writer, Seen]:
    url = f"sqlite:///{path / 'crm.db'}"

    def seen() -> list[int]:
        with sa.create_engine(url).connect() as connection:
            (table,) = set(sa.inspect(connection).get_table_names()) - {"tailrace_applied"}
            return sorted(n for (n,) in connection.exec_driver_sql(f'SELECT n FROM "{table}"'))

    return writers.sql(url), seen


def _topic(path: Path) -> tuple[Writer, Seen]:
    hub = tailrace.open(path / "events", sync="none")
    hub.create_topic("events", partitions=2)

    def seen() -> list[int]:
        reader, found = hub.topic("events").reader(), []
        while reads := reader.poll():
            found += [each.value for _, batch in reads for each in records_of(batch)]
        return sorted(msgspec.json.decode(value)["n"] for value in found)

    return writers.topic("events", hub=str(path / "events")), seen


@pytest.fixture(params=[_file, _parquet, _sql, _topic])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Writer, Seen]:
    made: tuple[Writer, Seen] = request.param(tmp_path)
    return made


def test_rows_of_another_hub_keep_a_pipeline_of_the_same_name_from_starting(
    sink: tuple[Writer, Seen],
) -> None:
    writer, seen = sink
    lake(writer, 10).run(a_hub("one"), once=True)
    two = a_hub("two")
    with pytest.raises(ConfigError, match=r"writer\.out: .* has rows of lake/out .*/two") as told:
        lake(writer, 10).run(two, once=True)
    assert "--hub" in str(told.value)
    assert two.topics() == []
    assert seen() == list(range(10))


def test_a_hub_that_has_delivered_nothing_yet_is_refused_too(
    sink: tuple[Writer, Seen],
) -> None:
    writer, seen = sink
    one = a_hub("one")
    assert lake(writer, 0).run(one, once=True).outcome is RunOutcome.DONE
    lake(writer, 10).run(a_hub("two"), once=True)
    with pytest.raises(ConfigError, match="/one"):
        lake(writer, 10).run(one, once=True)
    assert seen() == list(range(10))


def test_pipelines_and_writers_of_other_names_are_not_refused(
    sink: tuple[Writer, Seen],
) -> None:
    writer, seen = sink
    lake(writer, 10).run(a_hub("one"), once=True)
    lake(writer, 3, "lake-2").run(a_hub("two"), once=True)
    assert seen() == sorted([*range(10), *range(3)])


def test_a_writer_that_is_told_to_write_again_does_so_once(sink: tuple[Writer, Seen]) -> None:
    writer, seen = sink
    lake(writer, 10).run(a_hub("one"), once=True)
    two = a_hub("two")
    for options in ({"start": "again"}, {"start": "again"}, {}):
        lake(writer, 10, **options).run(two, once=True)
        assert seen() == sorted([*range(10), *range(10)])


def test_a_hub_that_lost_the_ledger_of_a_writer_continues_and_writes_nothing_twice(
    sink: tuple[Writer, Seen],
) -> None:
    writer, seen = sink
    hub = a_hub("one")
    lake(writer, 10).run(hub, once=True)
    writer_ledger.delete_ledger(hub.backend, WriterName("lake", "out"))
    lake(writer, 15).run(hub, once=True)
    assert seen() == list(range(15))


def test_a_deleted_commit_log_is_created_again_and_new_rows_are_written(
    sink: tuple[Writer, Seen],
) -> None:
    writer, seen = sink
    hub = a_hub("one")
    lake(writer, 10).run(hub, once=True)
    for rows in (10, 15):
        hub.delete_topic("lake.commits")
        lake(writer, rows).run(hub, once=True)
        assert seen() == list(range(rows))
