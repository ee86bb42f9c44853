"""`tailrace group seek`, `skip`, `delete`: plan, effect and audit."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import CommandLine
from tests.unit.cli.group.billing_consumers import consumers, mark


def test_a_seek_is_planned_then_applied_and_audited(cli: CommandLine) -> None:
    seek = ("group", "seek", "billing", "orders/0.0@1")
    planned = cli.run(*seek, "--dry-run").stdout
    assert "orders/0.0   4 -> 1" in planned
    assert "redelivered  up to 3 messages delivered before" in planned
    assert mark(cli) == 4
    assert cli.run(*seek, "--yes", "--reason", "charge again").stdout == planned + "done\n"
    assert mark(cli) == 1
    (entry,) = cli.json("audit", "--target", "billing")
    assert (entry["command"], entry["reason"]) == ("group seek", "charge again")
    assert entry["before"] == {"orders/0.0": 4}
    assert entry["after"] == {"orders/0.0": 1, "done": "moved to orders/0.0@1"}
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
    assert text == "billing is already at orders/0.0@4: nothing to do\n"
    assert not cli.json("group", "seek", "billing", "orders/0.0@4")["changes"]
    assert cli.json("audit") == []


def test_a_seek_to_the_mark_removes_acknowledgements_above_it(cli: CommandLine) -> None:
    cli.run("group", "skip", "billing", "orders/0.0@6", "--reason", "bad", "--yes")
    planned = cli.run("group", "seek", "billing", "orders/0.0@4", "--dry-run").stdout
    assert "orders/0.0   4 -> 4" in planned
    assert "redelivered  up to 1 message delivered before" in planned
    forward = cli.run("group", "seek", "billing", "latest", "--dry-run").stdout
    assert "skipped     up to 5 messages not delivered yet" in forward


def test_a_skip_is_planned_then_applied_and_recorded_with_its_reason(cli: CommandLine) -> None:
    skip = ("group", "skip", "billing", "orders/0.0@6", "--reason", "no such card")
    planned = cli.run(*skip, "--dry-run").stdout
    assert planned.startswith("billing: skip orders/0.0@6: acknowledge it without delivering it")
    assert cli.json("audit") == []
    assert cli.run(*skip, "--yes").stdout == planned + "done\n"
    (entry,) = cli.json("audit", "--target", "billing")
    assert (entry["command"], entry["reason"]) == ("group skip", "no such card")
    assert entry["after"]["acknowledged"] == "orders/0.0@6"
    line = cli.json("group", "history", "billing")[-1]
    assert (line["what"], line["why"]) == ("skip", "orders/0.0@6: no such card")
    assert "already acknowledged: nothing to do" in cli.run(*skip).stdout
    assert not cli.json(*skip)["changes"]
    assert len(cli.json("audit", "--target", "billing")) == 1
    assert cli.tail("orders", "--group", "billing") == ["4", "5", "7", "8", "9"]


def test_the_audit_lists_the_changes_to_a_group(cli: CommandLine) -> None:
    cli.run("group", "skip", "billing", "orders/0.0@6", "--reason", "bad", "--yes")
    cli.run("group", "seek", "billing", "latest", "--yes")
    cli.run("group", "delete", "billing", "--yes")
    lines = cli.run("audit").stdout.splitlines()[1:]
    whats = ["skipped orders/0.0@6", "moved to latest", "deleted"]
    assert [what in line for what, line in zip(whats, lines, strict=True)] == [True] * 3


@pytest.mark.parametrize("reason", ["", "  "])
@pytest.mark.parametrize("how", ["--yes", "--dry-run"])
def test_a_skip_without_a_reason_is_a_usage_error(cli: CommandLine, reason: str, how: str) -> None:
    skip = ("group", "skip", "billing", "orders/0.0@6", "--reason", reason, how)
    assert "InvalidValue: reason is " in cli.run(*skip, status=2).stderr
    assert cli.json("audit") == []


def test_a_skip_names_the_owner_that_is_granted_the_partition_again(cli: CommandLine) -> None:
    skip = ("group", "skip", "billing", "orders/0.0@6", "--reason", "bad", "--yes", "-o", "json")
    with consumers(cli, 1):
        (stream,) = cli.json("group", "show", "billing")["partitions"]
        plan = json.loads(cli.run(*skip).stdout)
    assert plan["facts"][0] == {
        "name": "owner",
        "what": f"{stream['owner']} is granted orders/0.0 again; "
        "its messages in flight are redelivered",
    }


@pytest.mark.parametrize(
    ("position", "status", "error"),
    [
        ("orders/0.0@10", 1, "OutOfRange: no record at orders/0.0@10 · valid: 0 <= offset < 10"),
        ("orders/0.1@0", 2, "InvalidValue: "),
        ("other/0.0@0", 2, "InvalidValue: topic of group 'billing' is 'other'"),
        ("6", 2, "InvalidValue: position is '6'"),
    ],
)
def test_a_skip_of_a_position_outside_the_group_is_an_error(
    cli: CommandLine, position: str, status: int, error: str
) -> None:
    skip = ("group", "skip", "billing", position, "--reason", "bad", "--yes")
    assert cli.run(*skip, status=status).stderr.startswith(error)
    assert cli.json("audit") == []


def test_an_invalid_position_is_a_usage_error_that_quotes_it(
    cli: CommandLine,
) -> None:
    error = cli.run("group", "seek", "billing", "yesterday", "--yes", status=2).stderr
    assert error.startswith("InvalidValue: seek target is 'yesterday' · valid: earliest, latest, @")
    assert mark(cli) == 4


def test_a_deleted_group_is_removed_and_the_deletion_is_audited(cli: CommandLine) -> None:
    assert (
        "6 messages not acknowledged" in cli.run("group", "delete", "billing", "--dry-run").stdout
    )
    assert mark(cli) == 4
    cli.run("group", "delete", "billing", "--yes", "--reason", "closed")
    assert cli.json("group", "list") == []
    (entry,) = cli.json("audit", "--target", "billing")
    assert (entry["command"], entry["reason"]) == ("group delete", "closed")
    assert entry["before"] == {"filter": "orders", "orders/0.0": 4}


def test_a_seek_to_the_newest_messages_is_refused_with_the_way_to_do_it(cli: CommandLine) -> None:
    error = cli.run("group", "seek", "billing", "-5", "--yes", status=2).stderr
    assert "seek target is '-5' · valid: earliest, latest" in error
    assert "give the first: tailrace tail TOPIC --from -5 --exit -f '%p@%o'" in error
    assert "No such option" not in error
    typed = cli.run("group", "seek", "billing", "earliest", "--dryrun", status=2).stderr
    assert "--dryrun" in typed
