"""`tailrace group seek`, `skip`, `delete`: what they plan, do, and leave behind."""

from __future__ import annotations

import json

import pytest

from tests.cli import CommandLine
from tests.unit.cli_group.consuming import consumers, mark


def test_a_seek_is_shown_then_made_and_audited(cli: CommandLine) -> None:
    seek = ("group", "seek", "billing", "orders/0.0@1")
    planned = cli.run(*seek, "--dry-run").stdout
    assert "orders/0.0  4 -> 1" in planned
    assert "again    up to 3 messages delivered before" in planned
    assert mark(cli) == 4
    assert cli.run(*seek, "--yes", "--reason", "charge again").stdout == planned + "done\n"
    assert mark(cli) == 1
    (entry,) = cli.json("audit", "--target", "billing")
    assert (entry["command"], entry["reason"]) == ("group seek", "charge again")
    assert entry["before"] == {"orders/0.0": 4}
    assert entry["after"] == {"orders/0.0": 1, "done": "sent to orders/0.0@1"}
    assert cli.json("group", "seek", "billing", "latest", "--yes")["changes"]
    assert mark(cli) == 10


@pytest.mark.parametrize(
    "change",
    [
        ("seek", "billing", "earliest"),
        ("skip", "billing", "orders/0.0@6", "--reason", "bad"),
        ("delete", "billing"),
    ],
    ids=lambda change: change[0],
)
def test_without_a_terminal_to_ask_on_a_change_needs_yes(
    cli: CommandLine, change: tuple[str, ...]
) -> None:
    assert "add --yes" in cli.run("group", *change, status=2).stderr
    assert mark(cli) == 4
    assert cli.json("audit") == []


def test_a_seek_that_moves_nothing_needs_no_yes(cli: CommandLine) -> None:
    text = cli.run("group", "seek", "billing", "orders/0.0@4").stdout
    assert text == "billing: is there, at orders/0.0@4; nothing to do\n"
    assert not cli.json("group", "seek", "billing", "orders/0.0@4")["changes"]
    assert cli.json("audit") == []


def test_a_seek_to_the_mark_moves_what_is_acknowledged_above_it(cli: CommandLine) -> None:
    cli.run("group", "skip", "billing", "orders/0.0@6", "--reason", "bad", "--yes")
    planned = cli.run("group", "seek", "billing", "orders/0.0@4", "--dry-run").stdout
    assert "orders/0.0  4 -> 4" in planned
    assert "again    up to 1 message delivered before" in planned
    forward = cli.run("group", "seek", "billing", "latest", "--dry-run").stdout
    assert "skipped  up to 5 messages not delivered yet" in forward


def test_a_skip_is_shown_then_made_and_kept_with_its_reason(cli: CommandLine) -> None:
    skip = ("group", "skip", "billing", "orders/0.0@6", "--reason", "no such card")
    planned = cli.run(*skip, "--dry-run").stdout
    assert planned.startswith("billing: orders/0.0@6 counts as acknowledged, and is not delivered")
    assert cli.json("audit") == []
    assert cli.run(*skip, "--yes").stdout == planned + "done\n"
    (entry,) = cli.json("audit", "--target", "billing")
    assert (entry["command"], entry["reason"]) == ("group skip", "no such card")
    assert entry["after"]["acknowledged"] == "orders/0.0@6"
    line = cli.json("group", "history", "billing")[-1]
    assert (line["what"], line["why"]) == ("skip", "orders/0.0@6: no such card")
    assert "acknowledged already; nothing to do" in cli.run(*skip).stdout
    assert not cli.json(*skip)["changes"]
    assert len(cli.json("audit", "--target", "billing")) == 1
    assert cli.tail("orders", "--group", "billing") == ["4", "5", "7", "8", "9"]


def test_the_audit_says_what_was_done_to_a_group(cli: CommandLine) -> None:
    cli.run("group", "skip", "billing", "orders/0.0@6", "--reason", "bad", "--yes")
    cli.run("group", "seek", "billing", "latest", "--yes")
    cli.run("group", "delete", "billing", "--yes")
    lines = cli.run("audit").stdout.splitlines()[1:]
    whats = ["skipped orders/0.0@6", "sent to latest", "deleted"]
    assert [what in line for what, line in zip(whats, lines, strict=True)] == [True] * 3


@pytest.mark.parametrize("reason", ["", "  "])
@pytest.mark.parametrize("how", ["--yes", "--dry-run"])
def test_a_skip_without_a_reason_is_a_usage_error(cli: CommandLine, reason: str, how: str) -> None:
    skip = ("group", "skip", "billing", "orders/0.0@6", "--reason", reason, how)
    assert "InvalidValue: reason is " in cli.run(*skip, status=2).stderr
    assert cli.json("audit") == []


def test_a_skip_names_the_owner_that_gets_the_partition_anew(cli: CommandLine) -> None:
    skip = ("group", "skip", "billing", "orders/0.0@6", "--reason", "bad", "--yes", "-o", "json")
    with consumers(cli, 1):
        (stream,) = cli.json("group", "show", "billing")["streams"]
        plan = json.loads(cli.run(*skip).stdout)
    assert f"owner  {stream['owner']} gets orders/0.0 anew" in plan["lines"][1]


@pytest.mark.parametrize(
    ("position", "status", "error"),
    [
        ("orders/0.0@10", 1, "OutOfRange: no record at orders/0.0@10 · valid: 0 <= offset < 10"),
        ("orders/0.1@0", 2, "InvalidValue: "),
        ("other/0.0@0", 2, "InvalidValue: topic of group 'billing' is 'other'"),
        ("6", 2, "InvalidValue: position is '6'"),
    ],
)
def test_a_skip_of_what_is_no_message_of_the_group_is_an_error(
    cli: CommandLine, position: str, status: int, error: str
) -> None:
    skip = ("group", "skip", "billing", position, "--reason", "bad", "--yes")
    assert cli.run(*skip, status=status).stderr.startswith(error)
    assert cli.json("audit") == []


def test_a_place_that_is_none_is_a_usage_error_under_the_name_it_was_given(
    cli: CommandLine,
) -> None:
    error = cli.run("group", "seek", "billing", "yesterday", "--yes", status=2).stderr
    assert error.startswith("InvalidValue: seek target is 'yesterday' · valid: earliest, latest, @")
    assert mark(cli) == 4


def test_a_deleted_group_is_forgotten_and_that_is_audited(cli: CommandLine) -> None:
    assert "6 messages that it has not" in cli.run("group", "delete", "billing", "--dry-run").stdout
    assert mark(cli) == 4
    cli.run("group", "delete", "billing", "--yes", "--reason", "closed")
    assert cli.json("group", "list") == []
    (entry,) = cli.json("audit", "--target", "billing")
    assert (entry["command"], entry["reason"]) == ("group delete", "closed")
    assert entry["before"] == {"filter": "orders", "orders/0.0": 4}
