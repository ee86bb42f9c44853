"""Commands that the command line suggests: a pasted one acts on the hub of the command before."""

from __future__ import annotations

import json
import logging
import re
import shlex
from pathlib import Path

import pytest

import tailrace
from tailrace.cli.context import CommandContext
from tailrace.cli.terminal.logs import JsonLogFormatter, TextLogFormatter
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A hub whose path the shell would split, with a group that lags; the variable names another
    hub, so that only the flag can name this one."""
    path = tmp_path / "my 'hub' \"2\""
    with tailrace.open(path, sync="none") as hub:
        hub.create_topic("orders", int, partitions=1).push_many([(None, n) for n in range(3)])
        with hub.topic("orders").tail(group="billing", limit=1) as consumer:
            list(consumer)
    return CommandLine(tmp_path / "elsewhere")


@pytest.fixture
def hub(cli: CommandLine) -> str:
    return str(cli.hub.with_name("my 'hub' \"2\""))


def pasted(command: str) -> tuple[str, ...]:
    """Return the arguments that a shell would pass for a suggested command."""
    program, *arguments = shlex.split(command)
    assert program == "tailrace"
    return tuple(arguments)


def test_an_explanation_suggests_commands_for_the_same_hub(cli: CommandLine, hub: str) -> None:
    shown = cli.run("--hub", hub, "explain", "billing").stdout
    suggested = [
        line[line.index("tailrace") :] for line in shown.splitlines() if "tailrace" in line
    ]
    assert len(suggested) == 3
    for each in suggested:
        assert each.startswith(f"tailrace --hub {shlex.quote(hub)} ")
    (seek,) = (each for each in suggested if "seek" in each)
    cli.run(*pasted(seek.partition("  ")[0]), "--yes")
    assert "lag 0" not in cli.run("explain", "billing", "--hub", hub).stdout
    assert cli.json("lag", "billing", "--hub", hub)[0]["lag"] == 0


def test_json_suggests_the_same_commands(cli: CommandLine, hub: str) -> None:
    found = cli.json("explain", "billing", "--hub", hub)
    assert [pasted(each["command"])[:4] for each in found["remedies"]] == [
        ("--hub", hub, "tail", "orders"),
        ("--hub", hub, "group", "seek"),
        ("--hub", hub, "group", "delete"),
    ]
    (problem,) = cli.json("status", "--hub", hub, status=4)["problems"]
    assert pasted(problem["remedy"]) == ("--hub", hub, "lag", "billing")


def test_an_error_suggests_a_command_for_the_same_hub(cli: CommandLine, hub: str) -> None:
    error = cli.run("topic", "show", "nope", "--hub", hub, status=1).stderr
    _, found, command = error.partition("create it: ")
    assert found
    cli.run(*pasted(command))
    assert "nope" in cli.run("topic", "list", "--hub", hub).stdout
    assert not cli.hub.exists()


def test_a_plan_suggests_a_command_for_the_same_hub(cli: CommandLine, hub: str) -> None:
    plan = cli.run("topic", "add-storage", "orders", "4", "--yes", "--hub", hub).stdout
    command = next(line for line in plan.splitlines() if "tailrace" in line).partition(": ")[2]
    cli.run(*pasted(command), "--yes")


def test_the_end_of_a_run_suggests_a_command_for_the_same_hub(
    cli: CommandLine, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sales.jsonl").write_text('{"id": 1}\nnot JSON\n')
    Path("lake.toml").write_text(
        '[pipeline]\nname = "lake"\nengine = "direct"\n'
        '[reader]\ntype = "file"\npath = "sales.jsonl"\n'
        '[writer.files]\ntype = "file"\npath = "out"\n'
    )
    shown = cli.run("pipeline", "run", "lake.toml", "--once", "--hub", hub).stdout
    command = re.search(r"see: (tailrace .*)", shown)
    assert command is not None
    assert "lake" in cli.run(*pasted(command[1])).stdout


def test_a_hub_of_the_environment_is_not_repeated(cli: CommandLine, hub: str) -> None:
    shown = CommandLine(Path(hub)).run("explain", "billing").stdout
    assert "tailrace group seek billing latest" in shown
    assert "--hub" not in shown


def test_the_hub_that_is_missing_is_named_once_and_quoted(cli: CommandLine, hub: str) -> None:
    missing = f"{hub} 3"
    error = cli.run("status", "--hub", missing, status=1).stderr
    created, other = re.findall(r"tailrace (.*? (?:NAME|FILE))", error)
    assert shlex.split(created) == ["--hub", missing, "topic", "create", "NAME"]
    assert shlex.split(other) == ["--hub", missing, "pipeline", "run", "FILE"]


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_no_command_suggests_to_create_a_hub_where_none_can_be(
    cli: CommandLine, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "letters"
    if kind == "file":
        path.write_text("Dear")
    else:
        path.mkdir()
        (path / "letter.txt").write_text("Dear")
    error = cli.run("status", "--hub", str(path), status=1).stderr
    assert error.startswith("IncompatibleHub: ")
    assert "give the path of a hub, or of a new directory" in error
    assert "create" not in error


def test_stored_messages_and_reasons_are_printed_as_they_are(cli: CommandLine, hub: str) -> None:
    advice = "run tailrace status first"
    cli.run("push", "orders", json.dumps(advice), "--any-type", "--hub", hub)
    assert advice in cli.run("tail", "orders", "--exit", "--hub", hub).stdout
    seek = ("group", "seek", "billing", "latest", "--yes", "--reason", advice)
    cli.run(*seek, "--hub", hub)
    assert advice in cli.run("audit", "--hub", hub).stdout
    assert advice in cli.run("audit", "-o", "json", "--hub", hub).stdout


def test_a_warning_suggests_a_command_for_the_same_hub() -> None:
    context = CommandContext(hub_path="a b")
    record = logging.makeLogRecord({"levelname": "WARNING", "msg": "see: tailrace dlq g list"})
    named = "see: tailrace --hub 'a b' dlq g list"
    assert TextLogFormatter(context.text).format(record) == f"WARNING: {named}"
    assert json.loads(JsonLogFormatter(context.text).format(record))["message"] == named


def test_a_word_that_is_no_command_stays(cli: CommandLine) -> None:
    context = CommandContext(hub_path="./data")
    assert context.text("the data source tailrace has no option") == (
        "the data source tailrace has no option"
    )
    assert context.text("tailrace --hub ./other status") == "tailrace --hub ./other status"
