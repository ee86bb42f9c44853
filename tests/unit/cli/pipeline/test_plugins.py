"""`tailrace reader`, `tailrace writer` and `tailrace pipeline init`: options, samples, files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tailrace.cli.context import CommandContext
from tailrace.cli.pipeline.init import init
from tailrace.pipeline.definition.plugins import PluginKind
from tailrace.pipeline.definition.settings import Engine
from tailrace.pipeline.definition.toml import load_pipeline
from tailrace.spark import installed
from tailrace.writers.spark import SparkWriter
from tests.support.command_line import CommandLine
from tests.support.plugins.packages import ACME, install, make_project


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    install(ACME, tmp_path / "site", monkeypatch)
    return CommandLine(tmp_path / "hub")


def run_init(*args: str, status: int = 0) -> Result:
    result = CliRunner().invoke(
        init, args, obj=CommandContext(), prog_name="tailrace pipeline init"
    )
    assert result.exit_code == status, result.output
    return result


def test_all_readers_and_writers_are_listed_with_their_packages(cli: CommandLine) -> None:
    readers = {each["name"]: each for each in cli.json("reader", "list")}
    assert readers["mbox"] == {
        "name": "mbox",
        "summary": "Reads the mails of a mailbox file, and follows it as it grows.",
        "package": "acme-tailrace 1.2",
        "loads": True,
    }
    assert readers["file"]["package"] == "tailrace"
    shown = cli.run("writer", "list").stdout
    assert "folder" in shown
    assert "acme-tailrace 1.2" in shown


def test_a_broken_plugin_is_listed_with_the_reason(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_points = '"tailrace.readers" = { bad = "bad_plugin:Bad" }'
    project = make_project(tmp_path / "bad", "bad", entry_points, "import no_such_module")
    install(project, tmp_path / "more", monkeypatch)
    listed = {each["name"]: each for each in cli.json("reader", "list")}
    assert "No module named 'no_such_module'" in listed["bad"]["summary"]
    assert not listed["bad"]["loads"]
    assert "no_such_module" in cli.run("reader", "show", "bad", status=2).stderr


def test_a_plugin_shows_every_option_with_its_meaning(cli: CommandLine) -> None:
    detail = cli.json("reader", "show", "mbox")
    assert detail["options"] == [
        {
            "name": "path",
            "type": "text",
            "required": True,
            "default": None,
            "meaning": "The file. In a file, it is relative to that file.",
            "example": '"inbox.mbox"',
        },
        {
            "name": "namespace",
            "type": "text",
            "required": False,
            "default": '"mails"',
            "meaning": "The namespace of its mails.",
            "example": None,
        },
    ]
    shown = cli.run("reader", "show", "mbox").stdout
    for text in ("Reads the mails", "required", '"mails"', "[reader]", 'path = "inbox.mbox"'):
        assert text in shown


def test_an_unknown_plugin_is_a_usage_error_with_the_nearest_name(cli: CommandLine) -> None:
    assert "did you mean 'mbox'?" in cli.run("reader", "show", "mbx", status=2).stderr


PAIRS = [
    *((name, "folder") for name in PluginKind.READER.built_in),
    *(("mbox", name) for name in (*PluginKind.WRITER.built_in, "folder")),
]


def uncommented(text: str) -> str:
    return re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("reader", "writer"), PAIRS)
@pytest.mark.usefixtures("cli")
def test_a_file_that_init_wrote_loads_as_it_is_and_with_every_line_uncommented(
    tmp_path: Path, reader: str, writer: str
) -> None:
    file = tmp_path / "lake.toml"
    run_init(reader, writer, str(file))
    pipeline = load_pipeline(file, {})
    assert pipeline.name == "lake"
    assert [each.name for each in pipeline.writers] == [writer]
    file.write_text(uncommented(file.read_text()))
    assert load_pipeline(file, {}).writers[0].chain.functions


@pytest.mark.usefixtures("cli")
def test_init_never_overwrites_a_file_unasked(tmp_path: Path) -> None:
    file = tmp_path / "lake.toml"
    file.write_text("mine")
    assert "add --yes" in run_init("mbox", "folder", str(file), status=2).output
    assert file.read_text() == "mine"
    run_init("mbox", "folder", str(file), "--yes")
    assert file.read_text() != "mine"


@pytest.mark.usefixtures("cli")
def test_init_names_the_file_and_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_init("mbox", "folder")
    run_init("mbox", "folder", "--name", "lake")
    assert load_pipeline("mbox-to-folder.toml").name == "mbox-to-folder"
    assert load_pipeline("lake.toml").name == "lake"


def test_init_writes_a_direct_pipeline_without_spark_and_tells_how_to_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    file = tmp_path / "lake.toml"
    shown = run_init("file", "parquet", str(file)).output
    assert "engine direct: Spark is not installed" in shown
    assert "to use Spark: pip install 'tailrace[spark]'" in shown
    pipeline = load_pipeline(file, {})
    assert [each.engine for each in pipeline.writers] == [Engine.DIRECT]
    text = file.read_text()
    assert "# Spark is not installed. To run on Spark: pip install 'tailrace[spark]'" in text
    needs = run_init("file", "spark", str(tmp_path / "needs.toml")).output
    assert "engine spark: Spark is not installed" in needs


def test_init_leaves_the_default_where_spark_is_installed(tmp_path: Path) -> None:
    file = tmp_path / "lake.toml"
    assert "Spark" not in run_init("file", "parquet", str(file)).output
    assert [each.engine for each in load_pipeline(file, {}).writers] == [Engine.SPARK]


@pytest.mark.usefixtures("cli")
def test_init_prints_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert 'name = "mbox-to-folder"' in run_init("mbox", "folder", "-").output
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.usefixtures("cli")
@pytest.mark.parametrize(
    "args", [("mbx", "folder"), ("mbox", "foldr"), ("mbox", "folder", "--name", "a b")]
)
def test_init_refuses_unknown_plugins_and_invalid_names(tmp_path: Path, args: Any) -> None:
    run_init(*args, status=2)


def test_the_samples_of_file_writers_go_to_directories_of_their_own(cli: CommandLine) -> None:
    paths = {
        name: next(o for o in cli.json("writer", "show", name)["options"] if o["name"] == "path")
        for name in ("file", "parquet")
    }
    assert paths["file"]["example"] != paths["parquet"]["example"]


@pytest.mark.parametrize("writer", ["topic", "file", "parquet"])
def test_a_file_that_init_wrote_runs_once_its_source_is_there(
    cli: CommandLine, tmp_path: Path, writer: str
) -> None:
    file = tmp_path / "lake.toml"
    run_init("file", writer, str(file))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.jsonl").write_text('{"id":1}\n')
    file.write_text(file.read_text().replace('#engine = "spark"', 'engine = "direct"', 1))
    report = cli.json("pipeline", "run", str(file), "--once")
    assert (report["outcome"], report["rows_read"]) == ("done", 1)


@pytest.mark.usefixtures("cli")
def test_the_sample_of_spark_writes_a_format_that_every_spark_has(tmp_path: Path) -> None:
    file = tmp_path / "lake.toml"
    run_init("file", "spark", str(file))
    (defined,) = load_pipeline(file, {}).writers
    assert isinstance(defined.writer, SparkWriter)
    assert (defined.writer.format, list(defined.writer.options)) == ("json", ["path"])
