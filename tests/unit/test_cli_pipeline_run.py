"""`tailrace pipeline run` and `test`: what they take, refuse and say."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.pipeline.reader_failure import ReaderFailure, store_failure
from tests.cli import CommandLine
from tests.pipelines.recording import set_bad


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
    ("more", "told"),
    [
        ("colour = 1", "lake.toml: writer.files.colour: unknown"),
        ('[writer.crm]\ntype = "sql"\nurl = "sqlite:////dev/null/x.db"', "lake.toml: writer.crm"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_by_file_and_key(
    cli: CommandLine, file: Path, verb: str, more: str, told: str
) -> None:
    file.write_text(FILE.format(more=more))
    assert told in cli.run("pipeline", verb, str(file), status=2).stderr
    assert not (file.parent / "out").exists()


def test_a_run_ends_when_all_is_delivered_and_says_what_was(cli: CommandLine, file: Path) -> None:
    report = cli.json("pipeline", "run", str(file), "--once")
    assert (report["ending"], report["last"]["rows_read"]) == ("done", 3)
    (writer,) = report["last"]["writers"]
    assert (writer["name"], writer["rows"], writer["behind"]) == ("lake/files", 3, 0)
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
        "from tests.pipelines.counting import CountingReader\n"
        "from tests.pipelines.recording import RecordingWriter\n"
        'lake = tailrace.Pipeline("lake", CountingReader(rows=3))\n'
        f'lake.write("crm", RecordingWriter({str(tmp_path)!r}), engine="direct")\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    report = cli.json("pipeline", "run", "lake_module:lake", "--once")
    assert report["last"]["rows_read"] == 3
    for wrong in ("lake_module:tailrace", "lake_module:none", "no_module:lake", "none.toml"):
        assert "ConfigError" in cli.run("pipeline", "run", wrong, status=2).stderr


def test_a_failed_reader_is_told_by_status_until_it_reads_again(
    cli: CommandLine, file: Path
) -> None:
    cli.run("pipeline", "run", str(file), "--once")
    with tailrace.open(cli.hub) as hub:
        store_failure(hub.backend, "lake", ReaderFailure(1_000, "OSError: the cable is out"))
    shown = cli.run("status", status=4).stdout.splitlines()
    assert shown[1] == "  reader lake  FAILED 00:00  tailrace pipeline status lake"
    shown = cli.run("pipeline", "status", "lake").stdout.splitlines()
    assert shown[1] == "  the reader FAILED at 00:00:01Z: OSError: the cable is out"
    (view,) = cli.json("pipeline", "status")
    assert view["reader_error"] == "OSError: the cable is out"
    cli.run("pipeline", "run", str(file), "--once")
    assert cli.run("status").stdout.startswith("well: ")


def test_a_run_without_source_files_delivers_what_waits_and_says_that_none_matches(
    cli: CommandLine, file: Path
) -> None:
    cli.run("pipeline", "run", str(file), "--once")
    (file.parent / "in" / "orders.jsonl").unlink()
    file.write_text(FILE.format(more='[writer.late]\ntype = "file"\npath = "late"'))
    assert "no file matches" in cli.run("pipeline", "test", str(file), status=2).stderr
    shown = cli.run("pipeline", "run", str(file), "--once").stdout.splitlines()
    assert shown[0].startswith("lake DONE")
    assert shown[1].startswith("reader: no file matches")
    (written,) = (file.parent / "late" / "orders").iterdir()
    assert len(written.read_text().splitlines()) == 3


def test_a_pipeline_starts_on_an_empty_directory_but_not_on_one_that_is_not_there(
    cli: CommandLine, file: Path
) -> None:
    (file.parent / "in" / "orders.jsonl").unlink()
    assert cli.json("pipeline", "run", str(file), "--once")["ending"] == "done"
    (file.parent / "in" / "orders.jsonl").write_text('{"id":1}\n')
    assert cli.json("pipeline", "run", str(file), "--once")["last"]["rows_read"] == 1
    (file.parent / "in").rename(file.parent / "elsewhere")
    told = cli.run("pipeline", "run", str(file), "--once", status=2).stderr
    assert "which is not there" in told


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
    told = elsewhere.run("pipeline", "run", str(file), "--once", status=2).stderr
    assert "lake.toml: writer.files: " in told
    assert f"has rows of lake/files that are not of the hub {elsewhere.hub}" in told
    assert 'writer.files.start = "again"' in told
    assert elsewhere.hub.exists() is made
    if made:
        assert elsewhere.json("pipeline", "status") == []
        assert "lake.commits" not in elsewhere.run("topic", "list").stdout
    file.write_text(file.read_text().replace('path = "out"', 'path = "out"\nstart = "again"'))
    told = elsewhere.run("pipeline", "run", str(file), "--once", status=2).stderr
    assert "writer.crm: SQLite" in told
    assert "has rows of lake/crm" in told
    assert (sorted((file.parent / "out").rglob("*")), _dump(database)) == before


def _dump(database: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


LAKE = """
import tailrace
from tests.pipelines.counting import CountingReader
from tests.pipelines.recording import RecordingWriter
lake = tailrace.Pipeline("lake", CountingReader(rows={rows}))
lake.write("crm", RecordingWriter({sink!r}), engine="direct", on_error={on_error!r})
"""


class Module:
    """A pipeline in a module of its own each time, as a module is imported once."""

    def __init__(self, cli: CommandLine, directory: Path) -> None:
        self.cli = cli
        self.directory = directory
        self._prefix = f"lake_{directory.parent.name}_{directory.name}".replace("-", "_")
        self._written = 0

    def write(self, rows: int, on_error: str) -> str:
        """Its name for the command line."""
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


def test_parked_records_are_those_of_this_run_and_letters_those_that_wait(module: Module) -> None:
    set_bad(module.directory, 3)
    first = module.run(16, "park")
    assert (first["last"]["writers"][0]["parked"], first["dead_letters"]) == (1, 1)
    module.cli.run("dlq", "lake", "discard", "0", "--reason", "a test")
    again = module.run(16, "park")
    assert (again["last"]["writers"][0]["parked"], again["dead_letters"]) == (0, 0)


def test_the_report_of_a_run_says_an_error_once(module: Module) -> None:
    set_bad(module.directory, 3)
    shown = module.cli.run("pipeline", "run", module.write(16, "stop"), "--once", status=1).stdout
    assert shown.count("refused because of 3") == 1


def test_a_signal_before_a_run_has_begun_ends_it_with_status_0(module: Module) -> None:
    name = module.write(16, "stop")
    with (module.directory / f"{name.partition(':')[0]}.py").open("a") as source:
        source.write("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    stopped = module.cli.run("pipeline", "run", name, "--once")
    assert "stopped before it had begun" in stopped.stderr
    assert not module.cli.hub.exists()
