"""The command line as a whole: help, errors, exit statuses, output, and how fast it starts."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import tailrace
from tailrace.amount import format_amount
from tailrace.cli.command import Noun, Verb
from tailrace.cli.root import root
from tailrace.cli.terminal.logs import JsonLogFormatter
from tailrace.terminal.tables import size, table
from tests.support.command_line import CommandLine

HELP_SECONDS_MAX = 0.3
HEAVY = {"apsw", "numpy", "pyarrow", "msgspec", "tailrace.hub.hub"}
PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "hub")


def verbs() -> Iterator[tuple[str, Verb]]:
    """Return every verb with its path, such as `topic create`."""
    context = click.Context(root)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        if isinstance(command, Noun):
            for each in command.commands.values():
                assert isinstance(each, Verb)
                yield f"{name} {each.name}", each
        else:
            assert isinstance(command, Verb)
            yield name, command


VERBS = dict(verbs())


def test_help_is_printed_fast() -> None:
    command = [sys.executable, "-m", "tailrace", "--help"]

    def seconds() -> float:
        """Return CPU time, because other tests use the same cores. The benchmark uses the clock."""
        before = os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])

    assert min(seconds() for _ in range(5)) < HELP_SECONDS_MAX


def test_nothing_heavy_is_imported_before_a_verb_runs() -> None:
    code = f"""
import sys
from tailrace.cli.terminal.logs import JsonLogFormatter
from tailrace.cli.root import root
try:
    root.main(["topic", "create", "--help"], prog_name="tailrace")
except SystemExit:
    print(sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("path", VERBS)
def test_every_verb_has_help_with_examples(cli: CommandLine, path: str) -> None:
    shown = cli.run(*path.split(), "--help").stdout
    assert f"Usage: tailrace {path}" in shown
    examples = shown.partition("Examples:")[2]
    assert f"tailrace {path}" in examples
    assert "-o, --output" in shown
    assert "--hub" in shown


@pytest.mark.parametrize("path", VERBS)
def test_every_verb_is_in_the_reference(path: str) -> None:
    assert f"tailrace {path}" in PAGE.read_text()


def test_the_help_of_a_group_describes_each_verb_in_one_whole_line(cli: CommandLine) -> None:
    nouns = {path.split()[0] for path in VERBS if " " in path}
    for group in ((), *((noun,) for noun in nouns)):
        assert "..." not in cli.run(*group, "--help").stdout.partition("Commands:")[2]


READS = [
    ("topic", "list"),
    ("topic", "show", "orders"),
    ("topic", "scale", "orders", "12", "--yes"),
    ("topic", "delete", "orders", "--yes"),
    ("push", "orders", "1"),
    ("tail", "orders", "--exit"),
    ("status",),
    ("segment", "list"),
    ("segment", "verify"),
    ("hub", "info"),
]


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_a_command_that_reads_creates_no_hub(cli: CommandLine, command: tuple[str, ...]) -> None:
    error = cli.run(*command, status=1).stderr
    assert f"no hub in {cli.hub}" in error
    assert f"tailrace --hub {cli.hub} topic create NAME" in error
    assert not cli.hub.exists()


def test_the_hub_may_be_named_before_or_after_the_verb(cli: CommandLine, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    cli.run("topic", "create", "orders", "--hub", other)
    assert "orders" in cli.run("--hub", other, "topic", "list").stdout
    assert not cli.hub.exists()


def test_a_setting_that_is_not_valid_is_a_configuration_error(cli: CommandLine) -> None:
    error = cli.run("status", status=2, env={"TAILRACE_HUB__SYNC": "never"}).stderr
    assert error.startswith("ConfigError: TAILRACE_HUB__SYNC")


@pytest.mark.parametrize(
    "command", [("nosuch",), ("topic", "nosuch"), ("topic", "create"), ("status", "--nosuch")]
)
def test_an_unknown_command_is_a_usage_error(cli: CommandLine, command: tuple[str, ...]) -> None:
    assert "Usage:" in cli.run(*command, status=2).stderr


def test_an_error_is_one_line_and_a_traceback_only_on_request(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    plain = cli.run("topic", "show", "order", status=1)
    assert plain.stdout == ""
    assert plain.stderr.count("\n") == 1
    assert "Traceback" in cli.run("topic", "show", "order", "--debug", status=1).stderr
    wanted = {"TAILRACE_DEBUG": "1"}
    assert "Traceback" in cli.run("topic", "show", "order", status=1, env=wanted).stderr


def test_a_hub_that_is_a_file_is_an_error(cli: CommandLine) -> None:
    cli.hub.write_text("")
    error = cli.run("topic", "create", "orders", status=1).stderr
    assert error.startswith(f"IncompatibleHub: {cli.hub} is a file")


def test_config_show_prints_each_setting_with_its_source(cli: CommandLine) -> None:
    shown = cli.json("config", "show", "--origin")
    path = next(setting for setting in shown if setting["name"] == "hub.path")
    assert path == {"name": "hub.path", "value": str(cli.hub), "origin": "TAILRACE_HUB"}
    assert "origin" not in cli.json("config", "show")[0]
    assert "hub.linger" in cli.run("config", "show").stdout
    assert "TAILRACE_HUB" in cli.run("config", "show", "--origin").stdout


def test_the_version_is_the_package_s(cli: CommandLine) -> None:
    assert cli.run("--version").stdout == f"tailrace {tailrace.__version__}\n"
    assert cli.json("version")["tailrace"] == tailrace.__version__
    assert cli.run("version").stdout.startswith(f"tailrace {tailrace.__version__}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(cli: CommandLine, shell: str) -> None:
    assert "_TAILRACE_COMPLETE" in cli.run("completion", shell).stdout


def test_topics_are_completed(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    cli.run("topic", "create", "notes")
    words = {
        "_TAILRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": "tailrace tail o",
        "COMP_CWORD": "2",
    }
    assert cli.run(env=words).stdout == "plain,orders\n"


def test_bench_measures_and_leaves_nothing(cli: CommandLine) -> None:
    measured = cli.json("bench", "--seconds", "0.01")
    assert {row["unit"] for row in measured} == {"writes", "messages"}
    assert all(row["per_second"] > 0 for row in measured)
    assert list(cli.hub.parent.iterdir()) == []


def test_colours_are_left_out_on_request(cli: CommandLine) -> None:
    script = "import sys; sys.stdout.isatty = lambda: True; from tailrace.cli import main; main()"
    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        done = subprocess.run(
            [sys.executable, "-c", script, "config", "show"],
            env=os.environ | {"TERM": "xterm"} | variables,
            capture_output=True,
            check=True,
        )
        assert (b"\x1b[" in done.stdout) is coloured


def test_json_is_one_line_where_it_is_piped(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    printed = cli.run("topic", "list", "-o", "json").stdout
    assert printed.count("\n") == 1
    assert json.loads(printed)


def test_each_log_entry_is_a_line_of_json() -> None:
    logger = logging.getLogger("tailrace.test")
    try:
        raise ValueError("why")
    except ValueError:
        record = logger.makeRecord(
            logger.name, logging.WARNING, "", 1, "lost %d", (3,), sys.exc_info()
        )
    fields = json.loads(JsonLogFormatter().format(record))
    assert (fields["level"], fields["message"]) == ("warning", "lost 3")
    assert "ValueError: why" in fields["traceback"]


def test_tables_align_numbers_to_the_right() -> None:
    lines = table(("name", "n", ""), [("a", 5, "x"), ("long", 1200, "y")])
    assert click.unstyle(lines).splitlines() == [
        "name      n",
        "a         5  x",
        "long  1,200  y",
    ]


def test_counts_and_sizes_read_well() -> None:
    assert [format_amount(1, "topic"), format_amount(1200, "topic")] == ["1 topic", "1,200 topics"]
    assert [size(n) for n in (0, 999, 1500, 2_500_000_000)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "2.5 GB",
    ]
