"""`tailrace source`: arguments, errors, output and exit statuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import tailrace
from tailrace.cli.root import root
from tests.support.command_line import CommandLine

FILE = """
[source]
name = "shop"

[reader]
type = "file"
path = "{path}"
"""


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "hub")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a source of three orders."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.jsonl").write_text('{"id":0}\n{"id":1}\n{"id":2}\n')
    file = tmp_path / "shop.toml"
    file.write_text(FILE.format(path=tmp_path / "in" / "*.jsonl"))
    return file


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a new module with sources, which is in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"shop_{tmp_path.parent.name}_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(
        "import os, signal\n"
        "import tailrace\n"
        "from tests.support.sources.split_reader import SplitReader\n"
        "class Stopping(SplitReader, frozen=True):\n"
        "    def there(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        return super().there()\n"
        "class Failing(SplitReader, frozen=True):\n"
        "    def there(self):\n"
        "        raise ValueError('the API answered 500')\n"
        "shop = tailrace.Source('shop', SplitReader())\n"
        "stopping = tailrace.Source('shop', Stopping(unmet=True))\n"
        "failing = tailrace.Source('shop', Failing())\n"
        "lake = tailrace.Pipeline('lake', SplitReader(), reading='shared', engine='direct')\n"
        "lake.write('files', tailrace.writers.file('out'))\n"
    )
    return name


def test_a_test_shows_rows_and_leaves_no_hub_behind(cli: CommandLine, file: Path) -> None:
    shown = cli.run("source", "test", str(file)).stdout.splitlines()
    assert shown[0].startswith("source shop  1 file")
    assert shown[1:] == ["  3 rows:", *(f'  orders  {{"id":{number}}}' for number in range(3))]
    assert cli.json("source", "test", str(file))["rows"][2]["document"] == {"id": 2}
    assert not cli.hub.exists()


def test_a_run_once_reads_everything_and_status_and_explain_tell_it(
    cli: CommandLine, file: Path
) -> None:
    report = cli.json("source", "run", str(file), "--once")
    assert (report["outcome"], report["rows"], report["bad"]) == ("done", 3, 0)
    assert "0 rows" in cli.run("source", "run", str(file), "--once").stdout
    (status,) = cli.json("source", "status", "shop")
    assert (status["state"], status["well"]) == ("IDLE", True)
    assert status["source"]["records"] == 4
    shown = cli.run("source", "status").stdout.splitlines()
    assert shown[0].startswith("shop  IDLE since ")
    assert shown[2] == "  orders  3 rows copied, following"
    assert cli.run("status").stdout.startswith("well: 4 topics, 1 source, ")
    explained = cli.run("explain", "shop").stdout
    assert f"tailrace source run {file}" in explained
    history = cli.json("source", "history", "shop")
    assert [each["event"] for each in history].count("joined") == 2
    assert cli.run("source", "history", "shop", "-n", "1").stdout.count("\n") == 2


def test_a_run_appends_to_the_log_until_a_signal_and_ends_with_status_0(
    cli: CommandLine, module: str
) -> None:
    stopped = cli.run("source", "run", f"{module}:stopping")
    assert "stopping; a second signal stops it at once" in stopped.stderr
    assert "stopped; the other tasks, or the next run, continue" in stopped.stdout


def test_a_run_once_that_is_stopped_early_ends_with_status_3(cli: CommandLine, module: str) -> None:
    report = cli.json("source", "run", f"{module}:stopping", "--once", status=3)
    assert report["outcome"] == "stopped"


def test_a_reader_that_fails_is_status_1_and_reported_until_a_task_reads_again(
    cli: CommandLine, module: str
) -> None:
    error = cli.run("source", "run", f"{module}:failing", "--once", status=1).stderr
    assert error.startswith("ValueError: the API answered 500")
    shown = cli.run("status", status=4).stdout
    assert "source shop  FAILED " in shown
    assert "tailrace explain shop" in shown
    explained = cli.run("explain", "shop").stdout
    assert explained.startswith("FAILED: source shop since ")
    assert "ValueError: the API answered 500" in explained
    assert "FAILED" in cli.run("source", "status", "shop").stdout
    cli.run("source", "run", f"{module}:shop", "--once")
    assert cli.run("status").stdout.startswith("well: ")


def test_unreadable_lines_are_dead_letters_and_status_4_with_strict(
    cli: CommandLine, file: Path
) -> None:
    (file.parent / "in" / "orders.jsonl").write_text('{"id":0}\n{"id":\n')
    shown = cli.run("source", "run", str(file), "--once", "--strict", status=4).stdout
    assert "1 dead letter, see: tailrace dlq shop list --by error" in shown
    assert "orders.jsonl:2" in cli.run("dlq", "shop", "list").stdout
    assert "source shop  1 pending dead letter" in cli.run("status", status=4).stdout
    cli.run("dlq", "shop", "discard", "0", "--reason", "a test")
    assert cli.run("status").stdout.startswith("well: ")


def test_a_run_once_without_data_is_status_1_unless_it_may_be_empty(
    cli: CommandLine, file: Path
) -> None:
    (file.parent / "in" / "orders.jsonl").unlink()
    error = cli.run("source", "run", str(file), "--once", status=1).stderr
    assert "no file matches" in error
    assert "--allow-empty" in error
    assert not cli.hub.exists()
    report = cli.json("source", "run", str(file), "--once", "--allow-empty")
    assert (report["outcome"], report["rows"]) == ("done", 0)


@pytest.mark.parametrize("verb", ["test", "run"])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (FILE.format(path="missing/*.jsonl"), "shop.toml: reader: no file matches"),
        (
            FILE.format(path="in/*").replace("shop", "a/b"),
            "shop.toml: source: 'a/b' is not a valid",
        ),
        (FILE.format(path="in/*") + "colour = 1", "shop.toml: reader.colour: unknown"),
        ("[source", "shop.toml is not TOML"),
    ],
)
def test_an_error_in_a_file_names_the_file_and_the_key(
    cli: CommandLine, file: Path, verb: str, text: str, error: str
) -> None:
    file.write_text(text)
    assert error in cli.run("source", verb, str(file), status=2).stderr
    assert not cli.hub.exists()


def test_what_is_no_source_is_refused(cli: CommandLine, module: str, tmp_path: Path) -> None:
    for wrong in ("none.toml", f"{module}:none", "no_module:shop", f"{module}:tailrace"):
        assert "ConfigError" in cli.run("source", "run", wrong, status=2).stderr
    lake = '[pipeline]\nname = "lake"\nsource = "shop"\n[writer.f]\ntype = "file"\npath = "o"\n'
    (tmp_path / "lake.toml").write_text(lake)
    error = cli.run("source", "run", "lake.toml", status=2).stderr
    assert "pipeline 'lake' only follows source 'shop'" in error


def test_names_are_completed_and_unknown_ones_are_errors(cli: CommandLine, file: Path) -> None:
    cli.run("source", "run", str(file), "--once")
    for verb in ("status", "history", "forget"):
        error = cli.run("source", verb, "shopp", status=1).stderr
        assert "UnknownSource: no source 'shopp'" in error
        assert "did you mean 'shop'?" in error
    completion = ShellComplete(root, {}, "tailrace", "_TAILRACE_COMPLETE")
    hub = ["--hub", str(cli.hub)]
    for arguments in (["source", "history"], ["source", "status"], ["explain"], ["dlq", "list"]):
        found = completion.get_completions([*hub, *arguments], "sh")
        assert "shop" in [each.value for each in found], arguments


def test_the_source_of_a_pipeline_is_read_by_tasks_and_by_the_pipeline(
    cli: CommandLine, module: str
) -> None:
    assert cli.json("source", "run", f"{module}:lake", "--once")["rows"] == 40
    report = cli.json("pipeline", "run", f"{module}:lake", "--once")
    assert (report["rows_read"], report["writers"][0]["rows"]) == (0, 40)
    (status,) = cli.json("source", "status", "lake")
    assert status["source"]["pipeline"] is True
    assert "tailrace source status lake" in cli.run("explain", "lake").stdout


def test_a_pipeline_without_a_source_of_tasks_is_no_source(
    cli: CommandLine, module: str, tmp_path: Path
) -> None:
    cli.run("source", "run", f"{module}:shop", "--once")
    alone = tmp_path / "lake.toml"
    alone.write_text(
        '[pipeline]\nname = "lake"\nsource = "shop"\nengine = "direct"\n'
        '[writer.files]\ntype = "file"\npath = "out"\n'
    )
    cli.run("pipeline", "run", str(alone), "--once")
    error = cli.run("source", "status", "lake", status=2).stderr
    assert "'lake' is a pipeline, which follows source 'shop'" in error
    shown = cli.run("pipeline", "status", "lake").stdout
    assert "  source shop IDLE since " in shown
    assert shown.count("tailrace explain shop") == 1


def test_a_source_is_forgotten_after_its_plan(cli: CommandLine, file: Path) -> None:
    cli.run("source", "run", str(file), "--once")
    plan = cli.run("source", "forget", "shop", "--dry-run").stdout
    assert plan.startswith("shop: forget the source and its positions in ")
    assert "reads everything again" in plan
    assert "add --yes" in cli.run("source", "forget", "shop", status=2).stderr
    cli.run("source", "forget", "shop", "--yes", "--reason", "the shop is closed")
    assert cli.json("source", "status") == []
    assert "no sources" in cli.run("source", "status").stdout
    assert "the shop is closed" in cli.run("audit", "--target", "shop").stdout
    with tailrace.open(cli.hub) as hub:
        assert "shop.commits" in hub.topics()
