"""`tailrace subscription reshard`, and what the other commands say about it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine

RESHARD = ("subscription", "reshard", "mailer")


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A topic of 4 partitions with messages, and its subscription mailer."""
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        orders = hub.create_topic("orders", int, partitions=4)
        hub.create_subscription("mailer", topic="orders")
        orders.push_many([(f"c{number}", number) for number in range(8)])
    return cli


def scale(cli: CommandLine, partitions: int) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        hub.topic("orders").scale(partitions)


def test_a_plan_is_shown_and_nothing_changes(cli: CommandLine) -> None:
    plan = cli.run(*RESHARD, "2", "--dry-run").stdout
    assert plan.splitlines() == [
        "mailer: 4 -> 2 shards",
        "  begins   now",
        "  keys     75% get another shard",
        "  queues   RQ and DLQ stay as they are",
        "  workers  finish the calls in flight, then continue with the new shards",
        "  undo     tailrace subscription reshard mailer 4",
    ]
    assert cli.json("subscription", "show", "mailer")["summary"]["shards"] == 4


def test_a_change_is_made_without_a_worker_and_audited(cli: CommandLine) -> None:
    text = cli.run(*RESHARD, "2", "--yes", "--reason", "fewer workers").stdout
    assert text.endswith("mailer: 4 -> 2 shards, generation 1\n")
    detail = cli.json("subscription", "show", "mailer")
    assert (detail["summary"]["shards"], detail["generation"]) == (2, 1)
    assert "generation" in cli.run("subscription", "show", "mailer").stdout
    (line,) = cli.json("audit", "--target", "mailer")
    assert line["before"] == {"shards": 4, "generation": 0}
    assert (line["command"], line["reason"]) == ("subscription reshard", "fewer workers")
    (event,) = cli.json("subscription", "history", "mailer")
    assert (event["what"], event["why"]) == ("reshard", "4 shards -> 2")
    assert cli.run(*RESHARD, "2", "--yes").stdout == "mailer has 2 shards already\n"


def test_a_change_that_has_to_wait_says_for_what_everywhere(cli: CommandLine) -> None:
    scale(cli, 12)
    plan = cli.run(*RESHARD, "12", "--dry-run").stdout
    assert "when orders/0 is finished (8 messages to acknowledge)" in plan
    report = cli.json(*RESHARD, "12", "--yes", "--wait", "0s")
    assert not report["done"]
    assert report["waits_for"] == [{"topic": "orders", "storage": 0, "messages": 8}]
    waits = "waits until orders/0 (8 messages left) is finished"
    assert waits in cli.run("subscription", "show", "mailer").stdout
    assert waits in cli.run("explain", "mailer", "--subscription").stdout
    assert waits in cli.run("status", status=4).stdout
    error = cli.run(*RESHARD, "6", "--yes", status=1).stderr
    assert error.startswith("Busy: mailer already changes to 12 shards")
    taken_back = cli.run(*RESHARD, "4", "--yes").stdout
    assert taken_back.endswith("mailer: taken back, 4 shards as before\n")


def test_an_interrupted_or_unfinished_wait_names_the_command_to_follow_it(
    cli: CommandLine,
) -> None:
    scale(cli, 12)
    text = cli.run(*RESHARD, "12", "--yes", "--wait", "0s").stdout
    assert text.endswith(
        "mailer: 4 -> 12 shards is under way and waits for orders/0;"
        " follow it: tailrace explain mailer --subscription\n"
    )


def test_a_number_that_is_not_possible_is_refused(cli: CommandLine) -> None:
    error = cli.run(*RESHARD, "3", "--yes", status=2).stderr
    assert error.startswith("InvalidValue: shards is 3 · valid: a number that divides the 4")
    assert "--uneven" in error
    assert "4 -> 3 shards" in cli.run(*RESHARD, "3", "--uneven", "--yes").stdout
