"""`tailrace pipeline`, `dlq`, `explain`, `audit`, `status`: what operators type and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailrace
from tests.cli import CommandLine
from tests.unit.operations.desk import Desk


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "hub")


def run(cli: CommandLine, *refused: int, on_error: str = "stop", times: int = 1) -> Desk:
    """Run the pipeline ``lake`` of 16 records in the hub of the command line."""
    with tailrace.open(cli.hub) as hub:
        desk = Desk(hub, cli.hub.parent, options={"on_error": on_error})
        desk.refuse(*refused)
        for _ in range(times):
            desk.run()
    return desk


@pytest.fixture
def failed(cli: CommandLine) -> Desk:
    return run(cli, 14, times=2)


def mark(cli: CommandLine) -> int:
    (view,) = cli.json("pipeline", "status", "lake")
    found: int = view["writers"][0]["marks"]["lake.commits/0.0"]
    return found


def test_status_at_3_am_names_the_failed_writer_and_the_command_that_explains(
    cli: CommandLine, failed: Desk
) -> None:
    shown = cli.run("status", status=4).stdout.splitlines()
    assert shown[0] == "NOT WELL"
    assert shown[1].startswith("  writer lake/crm  FAILED ")
    assert "at lake.commits/0.0@14, 2 behind  tailrace explain lake/crm" in shown[1]
    assert shown[-1].startswith("otherwise well: ")
    assert ", 1 pipeline, " in shown[-1]
    found = cli.json("status", status=4)
    assert (found["well"], found["pipelines"]) == (False, 1)


def test_an_explanation_leads_to_the_command_that_moves_the_writer_on(
    cli: CommandLine, failed: Desk
) -> None:
    shown = cli.run("explain", "lake/crm").stdout
    assert shown.startswith("FAILED since ")
    skip = "tailrace pipeline ack lake/crm 14 --reason TEXT"
    assert f"  skip        {skip}" in shown
    cli.run(*skip.split()[1:])
    assert mark(cli) == 15
    assert cli.json("explain", "lake/crm")["headline"].startswith("STOPPED")
    assert cli.run("status").stdout.startswith("well: ")


def test_an_ack_says_what_was_done_and_when_it_takes_effect(cli: CommandLine, failed: Desk) -> None:
    shown = cli.run("pipeline", "ack", "lake/crm", "14-15", "--reason", "tests").stdout
    assert shown == "lake/crm: acknowledged lake.commits/0.0@14-15; at its next start\n"
    (entry,) = cli.json("audit", "--target", "lake/crm")
    assert (entry["command"], entry["reason"]) == ("pipeline ack", "tests")
    assert "tests" in cli.run("audit", "-n", "1").stdout
    assert cli.run("audit", "--target", "other").stdout == "nothing was changed by hand\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("14",), "--reason"),
        (("14", "--reason", ""), "reason"),
        (("99", "--reason", "x"), "0 to 15"),
        (("3", "--reason", "x"), "not acknowledged"),
    ],
)
def test_a_refused_ack_is_a_usage_error_and_changes_nothing(
    cli: CommandLine, failed: Desk, arguments: tuple[str, ...], told: str
) -> None:
    assert told in cli.run("pipeline", "ack", "lake/crm", *arguments, status=2).stderr
    assert mark(cli) == 14
    assert cli.json("audit") == []


def test_an_unknown_writer_names_the_nearest(cli: CommandLine, failed: Desk) -> None:
    for command in (("pipeline", "retry"), ("explain",), ("dlq", "list")):
        told = cli.run(*command, "lake/crn", status=2).stderr
        assert "did you mean lake/crm?" in told


def test_a_retry_clears_the_failure(cli: CommandLine, failed: Desk) -> None:
    assert "goes on" in cli.run("pipeline", "retry", "lake/crm").stdout
    assert cli.run("status").stdout.startswith("well: ")
    shown = cli.json("pipeline", "retry", "lake/crm", "--one-at-a-time")
    assert "@14-15 one at a time" in shown["what"]


def test_a_rewind_shows_its_plan_and_does_nothing_unless_told_to(cli: CommandLine) -> None:
    run(cli)
    shown = cli.run("pipeline", "rewind", "lake/crm", "9", "--dry-run").stdout
    assert shown.startswith("lake/crm: goes back from lake.commits/0.0@16 to @9")
    assert "7 records" in shown
    cli.run("pipeline", "rewind", "lake/crm", "9", status=2)
    assert mark(cli) == 16
    cli.run("pipeline", "rewind", "lake/crm", "9", "--yes")
    assert mark(cli) == 9
    cli.run("pipeline", "rewind", "lake/crm", "17", "--yes", status=2)


def test_a_forgotten_writer_is_gone(cli: CommandLine) -> None:
    run(cli)
    assert "forgotten" in cli.run("pipeline", "forget", "lake/crm", "--dry-run").stdout
    assert cli.json("pipeline", "forget", "lake/crm", "--yes")["target"] == "lake/crm"
    (view,) = cli.json("pipeline", "status")
    assert view["writers"] == []
    (entry,) = cli.json("audit")
    assert entry["command"] == "pipeline forget"


def test_pipeline_status_shows_writers_and_namespaces(cli: CommandLine, failed: Desk) -> None:
    shown = cli.run("pipeline", "status").stdout
    assert shown.startswith("lake  does not run; CountingReader -> lake.commits")
    assert "lake/crm  failed" in shown
    assert "tailrace explain lake/crm" in shown
    namespaces = cli.run("pipeline", "status", "lake", "--namespaces").stdout.splitlines()
    assert namespaces[1].split() == ["lake/crm", "lake.commits/0.0", "A", "13", "2"]
    cli.run("pipeline", "status", "--namespaces", status=2)
    (row,) = cli.json("pipeline", "status", "lake", "--namespaces")
    assert row["acknowledged"] == 13


def test_the_log_is_printed_with_offset_time_mode_op_namespace_and_value(
    cli: CommandLine,
) -> None:
    run(cli)
    (line,) = cli.run("pipeline", "log", "lake", "--from", "14", "--to", "14").stdout.splitlines()
    fields = line.split("\t")
    assert (fields[0], fields[2:]) == ("14", ["copy", "insert", "A", '{"n":14}'])
    printed = cli.run("pipeline", "log", "lake", "--from", "-2", "-f", "%o %m %c %k")
    assert printed.stdout == "14 copy insert A\n15 copy insert A\n"
    records = cli.run("pipeline", "log", "lake", "--namespace", "/A/", "-o", "json").stdout
    assert [json.loads(line)["offset"] for line in records.splitlines()] == list(range(16))
    assert cli.run("pipeline", "log", "lake", "--namespace", "B").stdout == ""
    cli.run("pipeline", "log", "lake", "--namespace", "/(/", status=2)
    cli.run("pipeline", "log", "lake", "--from", "20", status=1)
    told = cli.run("pipeline", "log", "lake", "--from", "4", "--to", "3", status=2).stderr
    assert "lake.commits/0.0@4 or one behind it" in told


def test_dead_letters_make_a_round_trip(cli: CommandLine) -> None:
    run(cli, 3, 7, on_error="park")
    assert "writer lake/crm  2 dead letters" in cli.run("status", status=4).stdout
    grouped = cli.run("dlq", "lake", "list", "--by", "error").stdout.splitlines()
    assert grouped[1].split()[:2] == ["2", "lake/crm"]
    listed = cli.json("dlq", "lake/crm", "list")
    assert [letter["origin"] for letter in listed] == ["lake.commits/0.0@3", "lake.commits/0.0@7"]
    shown = cli.run("dlq", "lake/crm", "show", "lake.commits/0.0@7").stdout
    assert "refused because of 7" in shown
    assert '{"n":7}' in shown
    assert "sent again" in cli.run("dlq", "lake/crm", "redeliver", "0").stdout
    cli.run("dlq", "lake/crm", "discard", "1", status=2)
    assert "given up" in cli.run("dlq", "lake/crm", "discard", "1", "--reason", "test").stdout
    assert cli.run("dlq", "lake", "list").stdout == "no dead letters wait\n"
    assert cli.run("dlq", "lake", "list", "--by", "error").stdout == "no dead letters wait\n"
    desk = run(cli)
    assert desk.given()[-1] == 16
    assert [entry["command"] for entry in cli.json("audit")] == ["dlq redeliver", "dlq discard"]
    audited = cli.run("audit").stdout
    assert "1 dead letter sent again" in audited
    assert "1 dead letter given up" in audited
    cli.run("dlq", "lake/crm", "redeliver", status=2)
    cli.run("dlq", "lake/crm", "show", status=2)


def test_writers_are_completed(cli: CommandLine, failed: Desk) -> None:
    words = {
        "_TAILRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": "tailrace explain la",
        "COMP_CWORD": "2",
    }
    assert cli.run(env=words).stdout == "plain,lake/crm\n"


def test_a_list_of_dead_letters_that_is_cut_says_so(cli: CommandLine) -> None:
    run(cli, 3, 7, on_error="park")
    cut = cli.run("dlq", "lake", "list", "-n", "1")
    assert "7" not in cut.stdout.splitlines()[1].split()[2]
    assert "more than 1 wait" in cut.stderr
    assert cli.run("dlq", "lake", "list", "-n", "2").stderr == ""


def test_commands_for_pipelines_without_a_hub_say_what_makes_one(cli: CommandLine) -> None:
    told = cli.run("pipeline", "status", status=1).stderr
    assert "tailrace pipeline run FILE" in told
