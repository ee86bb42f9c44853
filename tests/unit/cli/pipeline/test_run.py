"""`tailrace pipeline run` and `test`: arguments, errors and output."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.pipeline.reading.reader_failure import ReaderFailure, store_failure
from tests.support.command_line import CommandLine
from tests.support.pipelines.recording_writer import set_bad


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "hub")


FILE = """
[pipeline]
name = "lake"
engine = "direct"

[reader]
type = "file"
path = "in/*.jsonl"

[writer.files]
type = "file"
path = "out"
functions = [{{ omit = ["card"] }}]
{more}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    rows = (f'{{"id":{number},"card":"x"}}\n' for number in range(3))
    (tmp_path / "in" / "orders.jsonl").write_text("".join(rows))
    path = tmp_path / "lake.toml"
    path.write_text(FILE.format(more=""))
    return path


def test_a_pipeline_is_tested_without_writing_anything(cli: CommandLine, file: Path) -> None:
    shown = cli.run("pipeline", "test", str(file)).stdout
    assert "writer files" in shown
    assert '  orders  {"id":0}' in shown
    trial = cli.json("pipeline", "test", str(file))
    assert trial["writers"][0]["rows"][2] == {"namespace": "orders", "document": {"id": 2}}
    assert not (file.parent / "out").exists()
    assert not cli.hub.exists()


@pytest.mark.parametrize("verb", ["test", "run"])
@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("colour = 1", "lake.toml: writer.files.colour: unknown"),
        ('[writer.crm]\ntype = "sql"\nurl = "sqlite:///lake.toml"', "lake.toml: writer.crm"),
    ],
)
def test_an_error_in_a_file_is_reported_with_file_and_key(
    cli: CommandLine, file: Path, verb: str, more: str, error: str
) -> None:
    file.write_text(FILE.format(more=more))
    assert error in cli.run("pipeline", verb, str(file), status=2).stderr
    assert not (file.parent / "out").exists()


def test_a_run_ends_when_all_is_delivered_and_prints_the_totals(
    cli: CommandLine, file: Path
) -> None:
    report = cli.json("pipeline", "run", str(file), "--once")
    assert (report["outcome"], report["rows_read"]) == ("done", 3)
    (writer,) = report["writers"]
    assert (writer["name"], writer["rows"], writer["lag"]) == ("lake/files", 3, 0)
    assert writer["state"] == "done"
    assert report["spark_log"] is None
    (written,) = (file.parent / "out" / "orders").iterdir()
    assert written.read_text() == '{"id":0}\n{"id":1}\n{"id":2}\n'
    shown = cli.run("pipeline", "run", str(file), "--once").stdout
    assert shown.startswith("lake DONE after ")
    assert "0 rows read" in shown


def test_a_pipeline_of_a_module_is_run_by_its_name(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake_module.py").write_text(
        "import tailrace\n"
        "from tests.support.pipelines.counting_reader import CountingReader\n"
        "from tests.support.pipelines.recording_writer import RecordingWriter\n"
        'lake = tailrace.Pipeline("lake", CountingReader(rows=3))\n'
        f'lake.write("crm", RecordingWriter({str(tmp_path)!r}), engine="direct")\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    report = cli.json("pipeline", "run", "lake_module:lake", "--once")
    assert report["rows_read"] == 3
    for wrong in ("lake_module:tailrace", "lake_module:none", "no_module:lake", "none.toml"):
        assert "ConfigError" in cli.run("pipeline", "run", wrong, status=2).stderr


def test_status_reports_a_failed_reader_until_it_reads_again(cli: CommandLine, file: Path) -> None:
    cli.run("pipeline", "run", str(file), "--once")
    with tailrace.open(cli.hub) as hub:
        store_failure(hub.backend, "lake", ReaderFailure(1_000, "OSError: the cable is out"))
    shown = cli.run("status", status=4).stdout.splitlines()
    assert shown[1] == "  reader lake  FAILED 00:00  tailrace pipeline status lake"
    shown = cli.run("pipeline", "status", "lake").stdout.splitlines()
    assert shown[1] == "  reader FAILED at 00:00:01Z: OSError: the cable is out"
    (view,) = cli.json("pipeline", "status")
    assert view["reader_error"] == "OSError: the cable is out"
    cli.run("pipeline", "run", str(file), "--once")
    assert cli.run("status").stdout.startswith("well: ")


def test_a_run_without_source_files_delivers_pending_rows_and_reports_that_none_matches(
    cli: CommandLine, file: Path
) -> None:
    cli.run("pipeline", "run", str(file), "--once")
    (file.parent / "in" / "orders.jsonl").unlink()
    file.write_text(FILE.format(more='[writer.late]\ntype = "file"\npath = "late"'))
    assert "no file matches" in cli.run("pipeline", "test", str(file), status=2).stderr
    shown = cli.run("pipeline", "run", str(file), "--once", "--allow-empty").stdout.splitlines()
    assert shown[0].startswith("lake DONE")
    assert shown[1].startswith("reader: no file matches")
    (written,) = (file.parent / "late" / "orders").iterdir()
    assert len(written.read_text().splitlines()) == 3


def test_a_pipeline_starts_on_an_empty_directory_if_allowed_but_not_on_a_missing_one(
    cli: CommandLine, file: Path
) -> None:
    (file.parent / "in" / "orders.jsonl").unlink()
    report = cli.json("pipeline", "run", str(file), "--once", "--allow-empty")
    assert report["outcome"] == "done"
    (file.parent / "in" / "orders.jsonl").write_text('{"id":1}\n')
    assert cli.json("pipeline", "run", str(file), "--once")["rows_read"] == 1
    (file.parent / "in").rename(file.parent / "elsewhere")
    error = cli.run("pipeline", "run", str(file), "--once", status=2).stderr
    assert "which does not exist" in error


def test_a_run_once_without_any_file_is_an_error_that_names_the_glob_and_the_directory(
    cli: CommandLine, file: Path
) -> None:
    (file.parent / "in" / "orders.jsonl").unlink()
    error = cli.run("pipeline", "run", str(file), "--once", status=1).stderr
    assert f"no file matches '{file.parent}/in/*.jsonl'" in error
    assert f"searched {file.parent}/in" in error
    assert "--allow-empty" in error
    assert not cli.hub.exists()


def test_status_reports_a_run_that_found_no_file_until_one_finds_some(
    cli: CommandLine, file: Path
) -> None:
    orders = file.parent / "in" / "orders.jsonl"
    cli.run("pipeline", "run", str(file), "--once")
    orders.rename(file.parent / "orders.jsonl")
    cli.run("pipeline", "run", str(file), "--once", status=1)
    assert "  reader lake  FAILED " in cli.run("status", status=4).stdout
    shown = cli.run("pipeline", "status", "lake").stdout
    assert "no file matches" in shown
    assert f"run it again: tailrace pipeline run {file}" in shown
    (file.parent / "orders.jsonl").rename(orders)
    cli.run("pipeline", "run", str(file), "--once")
    assert cli.run("status").stdout.startswith("well: ")


def test_unreadable_lines_are_counted_in_the_closing_text_and_status_4_with_strict(
    cli: CommandLine, file: Path
) -> None:
    (file.parent / "in" / "orders.jsonl").write_text('{"id":1}\n{"id":\n{"id":2}\n')
    (file.parent / "in" / "users.csv").write_text("id,name\n1,Ada\n2,Bob,extra\n3,Eve\n")
    file.write_text(file.read_text().replace("*.jsonl", "*"))
    shown = cli.run("pipeline", "run", str(file), "--once", "--strict", status=4).stdout
    assert "4 rows read, 2 unreadable lines: all records were delivered" in shown
    assert "2 unreadable lines, see: tailrace dlq lake list --by error" in shown
    listed = cli.run("dlq", "lake", "list", "--by", "error").stdout
    assert listed.count("lake  ") == 2
    (file.parent / "in" / "more.jsonl").write_text('{"id":\n')
    report = cli.json("pipeline", "run", str(file), "--once")
    assert (report["unreadable"], report["dead_letters"]) == (1, 3)
    cli.run("pipeline", "run", str(file), "--once", "--strict")


def test_a_run_that_is_refused_leaves_no_hub_behind(cli: CommandLine, file: Path) -> None:
    (file.parent / "in" / "orders.jsonl").unlink()
    (file.parent / "in").rmdir()
    cli.run("pipeline", "run", str(file), "--once", status=2)
    assert not cli.hub.exists()


SQL = '[writer.crm]\ntype = "sql"\nurl = "sqlite:///crm.db"'


@pytest.mark.parametrize("made", [False, True])
def test_a_run_in_another_hub_by_mistake_is_refused_and_its_sinks_stay_as_they_are(
    cli: CommandLine, file: Path, made: bool
) -> None:
    file.write_text(FILE.format(more=SQL))
    cli.run("pipeline", "run", str(file), "--once")
    database = file.parent / "crm.db"
    before = sorted((file.parent / "out").rglob("*")), _dump(database)
    elsewhere = CommandLine(file.parent / "elsewhere" / "tailrace-data")
    if made:
        elsewhere.run("topic", "create", "notes")
    error = elsewhere.run("pipeline", "run", str(file), "--once", status=2).stderr
    assert "lake.toml: writer.files: " in error
    assert "the sink (" in error
    assert f") has rows of lake/files that are not from the hub {elsewhere.hub}" in error
    assert 'writer.files.start = "again"' in error
    assert elsewhere.hub.exists() is made
    if made:
        assert elsewhere.json("pipeline", "status") == []
        assert "lake.commits" not in elsewhere.run("topic", "list").stdout
    file.write_text(file.read_text().replace('path = "out"', 'path = "out"\nstart = "again"'))
    error = elsewhere.run("pipeline", "run", str(file), "--once", status=2).stderr
    assert "writer.crm: the sink (SQLite" in error
    assert "has rows of lake/crm" in error
    assert (sorted((file.parent / "out").rglob("*")), _dump(database)) == before


def _dump(database: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


LAKE = """
import tailrace
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import RecordingWriter
lake = tailrace.Pipeline("lake", CountingReader(rows={rows}))
lake.write("crm", RecordingWriter({sink!r}), engine="direct", on_error={on_error!r})
"""


class Module:
    """Write a pipeline into a new module each time, because a module is imported once."""

    def __init__(self, cli: CommandLine, directory: Path) -> None:
        self.cli = cli
        self.directory = directory
        self._prefix = f"lake_{directory.parent.name}_{directory.name}".replace("-", "_")
        self._written = 0

    def write(self, rows: int, on_error: str) -> str:
        """Return its name for the command line."""
        self._written += 1
        name = f"{self._prefix}_{self._written}"
        text = LAKE.format(rows=rows, sink=str(self.directory), on_error=on_error)
        (self.directory / f"{name}.py").write_text(text)
        return f"{name}:lake"

    def run(self, rows: int, on_error: str) -> Any:
        return self.cli.json("pipeline", "run", self.write(rows, on_error), "--once")


@pytest.fixture
def module(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return Module(cli, tmp_path)


def test_a_run_reports_its_own_parked_records_and_all_pending_dead_letters(module: Module) -> None:
    set_bad(module.directory, 3)
    first = module.run(16, "park")
    assert (first["writers"][0]["parked"], first["dead_letters"]) == (1, 1)
    module.cli.run("dlq", "lake", "discard", "0", "--reason", "a test")
    again = module.run(16, "park")
    assert (again["writers"][0]["parked"], again["dead_letters"]) == (0, 0)


def test_the_closing_text_does_not_count_parked_records_as_delivered(module: Module) -> None:
    set_bad(module.directory, 3, 5)
    shown = module.cli.run("pipeline", "run", module.write(16, "park"), "--once").stdout
    assert "16 rows read: all records were delivered except 2 parked records\n" in shown
    again = module.cli.run("pipeline", "run", module.write(16, "park"), "--once").stdout
    assert "0 rows read: all records were delivered\n" in again


def test_the_report_of_a_run_prints_an_error_once(module: Module) -> None:
    set_bad(module.directory, 3)
    shown = module.cli.run("pipeline", "run", module.write(16, "stop"), "--once", status=1).stdout
    assert shown.count("refused because of 3") == 1


def test_a_signal_before_a_run_has_begun_ends_it_with_status_0(module: Module) -> None:
    name = module.write(16, "stop")
    with (module.directory / f"{name.partition(':')[0]}.py").open("a") as source:
        source.write("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    stopped = module.cli.run("pipeline", "run", name, "--once")
    assert "stopped before the pipeline started" in stopped.stderr
    assert not module.cli.hub.exists()
