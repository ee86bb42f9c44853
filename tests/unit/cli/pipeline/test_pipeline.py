"""`tailrace pipeline`, `dlq`, `explain`, `audit`, `status`: arguments and output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine
from tests.support.pipelines.lake import Lake


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "hub")


def run(cli: CommandLine, *refused: int, on_error: str = "stop", times: int = 1) -> Lake:
    """Run the pipeline ``lake`` of 16 records in the hub of the command line."""
    with tailrace.open(cli.hub) as hub:
        lake = Lake(hub, cli.hub.parent, options={"on_error": on_error})
        lake.refuse(*refused)
        for _ in range(times):
            lake.run()
    return lake


@pytest.fixture
def failed(cli: CommandLine) -> Lake:
    return run(cli, 14, times=2)


def mark(cli: CommandLine) -> int:
    (view,) = cli.json("pipeline", "status", "lake")
    found: int = view["writers"][0]["marks"]["lake.commits/0.0"]
    return found


def test_status_at_3_am_names_the_failed_writer_and_the_command_that_explains(
    cli: CommandLine, failed: Lake
) -> None:
    shown = cli.run("status", status=4).stdout.splitlines()
    assert shown[0] == "NOT WELL"
    assert shown[1].startswith("  writer lake/crm  FAILED ")
    assert "at lake.commits/0.0@14, lag 2  tailrace explain lake/crm" in shown[1]
    assert shown[-1].startswith("otherwise well: ")
    assert ", 1 pipeline, " in shown[-1]
    found = cli.json("status", status=4)
    assert (found["well"], found["pipelines"]) == (False, 1)


def test_an_explanation_names_the_command_that_lets_the_writer_continue(
    cli: CommandLine, failed: Lake
) -> None:
    shown = cli.run("explain", "lake/crm").stdout
    assert shown.startswith("FAILED since ")
    skip = "tailrace pipeline ack lake/crm 14 --reason TEXT"
    assert f"  skip        {skip}" in shown
    cli.run(*skip.split()[1:])
    assert mark(cli) == 15
    assert cli.json("explain", "lake/crm")["headline"].startswith("STOPPED")
    assert cli.run("status").stdout.startswith("well: ")


def test_an_ack_prints_its_offsets_and_when_it_takes_effect(cli: CommandLine, failed: Lake) -> None:
    shown = cli.run("pipeline", "ack", "lake/crm", "14-15", "--reason", "tests").stdout
    assert (
        shown == "lake/crm: acknowledged lake.commits/0.0@14-15; takes effect at the next start\n"
    )
    (entry,) = cli.json("audit", "--target", "lake/crm")
    assert (entry["command"], entry["reason"]) == ("pipeline ack", "tests")
    assert "tests" in cli.run("audit", "-n", "1").stdout
    assert cli.run("audit", "--target", "other").stdout == "no manual changes\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("14",), "--reason"),
        (("14", "--reason", ""), "reason"),
        (("99", "--reason", "x"), "0 to 15"),
        (("3", "--reason", "x"), "not acknowledged"),
    ],
)
def test_a_refused_ack_is_a_usage_error_and_changes_nothing(
    cli: CommandLine, failed: Lake, arguments: tuple[str, ...], error: str
) -> None:
    assert error in cli.run("pipeline", "ack", "lake/crm", *arguments, status=2).stderr
    assert mark(cli) == 14
    assert cli.json("audit") == []


def test_an_unknown_writer_is_answered_with_the_nearest_name(
    cli: CommandLine, failed: Lake
) -> None:
    for command in (("pipeline", "retry"), ("explain",), ("dlq", "list")):
        error = cli.run(*command, "lake/crn", status=2).stderr
        assert "did you mean 'lake/crm'?" in error


def test_a_retry_clears_the_failure(cli: CommandLine, failed: Lake) -> None:
    assert "continues" in cli.run("pipeline", "retry", "lake/crm").stdout
    assert cli.run("status").stdout.startswith("well: ")
    shown = cli.json("pipeline", "retry", "lake/crm", "--one-at-a-time")
    assert "@14-15 one at a time" in shown["what"]


def test_a_rewind_shows_its_plan_and_changes_nothing_without_confirmation(cli: CommandLine) -> None:
    run(cli)
    shown = cli.run("pipeline", "rewind", "lake/crm", "9", "--dry-run").stdout
    assert shown.startswith("lake/crm: rewind from lake.commits/0.0@16 to @9")
    assert "7 acknowledged records" in shown
    cli.run("pipeline", "rewind", "lake/crm", "9", status=2)
    assert mark(cli) == 16
    cli.run("pipeline", "rewind", "lake/crm", "9", "--yes")
    assert mark(cli) == 9
    cli.run("pipeline", "rewind", "lake/crm", "17", "--yes", status=2)


def test_a_forgotten_writer_is_no_longer_listed(cli: CommandLine) -> None:
    run(cli)
    assert (
        "forget the writer and its progress"
        in cli.run("pipeline", "forget", "lake/crm", "--dry-run").stdout
    )
    assert cli.json("pipeline", "forget", "lake/crm", "--yes")["target"] == "lake/crm"
    (view,) = cli.json("pipeline", "status")
    assert view["writers"] == []
    (entry,) = cli.json("audit")
    assert entry["command"] == "pipeline forget"


def test_pipeline_status_shows_writers_and_namespaces(cli: CommandLine, failed: Lake) -> None:
    shown = cli.run("pipeline", "status").stdout
    assert shown.startswith("lake  not running since ")
    assert "Z; CountingReader -> lake.commits" in shown
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
    assert "lake.commits/0.0@4 or a later position" in told


def test_dead_letters_make_a_round_trip(cli: CommandLine) -> None:
    run(cli, 3, 7, on_error="park")
    assert "writer lake/crm  2 pending dead letters" in cli.run("status", status=4).stdout
    grouped = cli.run("dlq", "lake", "list", "--by", "error").stdout.splitlines()
    assert grouped[1].split()[:2] == ["2", "lake/crm"]
    listed = cli.json("dlq", "lake/crm", "list")
    assert [letter["origin"] for letter in listed] == ["lake.commits/0.0@3", "lake.commits/0.0@7"]
    shown = cli.run("dlq", "lake/crm", "show", "lake.commits/0.0@7").stdout
    assert "refused because of 7" in shown
    assert '{"n":7}' in shown
    assert "redelivered" in cli.run("dlq", "lake/crm", "redeliver", "0").stdout
    cli.run("dlq", "lake/crm", "discard", "1", status=2)
    assert "discarded" in cli.run("dlq", "lake/crm", "discard", "1", "--reason", "test").stdout
    assert cli.run("dlq", "lake", "list").stdout == "no pending dead letters\n"
    assert cli.run("dlq", "lake", "list", "--by", "error").stdout == "no pending dead letters\n"
    lake = run(cli)
    assert lake.delivered()[-1] == 16
    assert [entry["command"] for entry in cli.json("audit")] == ["dlq redeliver", "dlq discard"]
    audited = cli.run("audit").stdout
    assert "1 dead letter redelivered" in audited
    assert "1 dead letter discarded" in audited
    cli.run("dlq", "lake/crm", "redeliver", status=2)
    cli.run("dlq", "lake/crm", "show", status=2)


def test_writers_are_completed(cli: CommandLine, failed: Lake) -> None:
    words = {
        "_TAILRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": "tailrace pipeline retry la",
        "COMP_CWORD": "3",
    }
    assert cli.run(env=words).stdout == "plain,lake/crm\n"
    words |= {"COMP_WORDS": "tailrace explain la", "COMP_CWORD": "2"}
    assert "plain,lake/crm\n" in cli.run(env=words).stdout


def test_a_list_of_dead_letters_that_is_cut_is_marked_as_cut(cli: CommandLine) -> None:
    run(cli, 3, 7, on_error="park")
    cut = cli.run("dlq", "lake", "list", "-n", "1")
    assert "7" not in cut.stdout.splitlines()[1].split()[2]
    assert "not all are shown" in cut.stderr
    assert cli.run("dlq", "lake", "list", "-n", "2").stderr == ""


def test_commands_for_pipelines_without_a_hub_name_the_command_that_creates_one(
    cli: CommandLine,
) -> None:
    error = cli.run("pipeline", "status", status=1).stderr
    assert f"tailrace --hub {cli.hub} pipeline run FILE" in error


def test_the_plan_to_delete_a_commit_log_names_its_pipeline_and_the_writers_that_lag(
    cli: CommandLine, failed: Lake
) -> None:
    plan = cli.run("topic", "delete", "lake.commits", "--dry-run").stdout.splitlines()
    assert plan[1] == "  pipeline lake    its commit log; the pipeline does not run"
    assert plan[2] == (
        "  reader           continues after the rows that it has read;"
        " earlier rows are not read again"
    )
    assert plan[3] == "  writer lake/crm  has not delivered 2 messages, which will be lost"
    letters = cli.run("topic", "delete", "lake.dead-letters", "--dry-run").stdout.splitlines()
    assert letters[1].endswith("its dead letters; the pipeline does not run")
