"""`tailrace status` and `explain` of groups: what is well, what stands still, and what helps."""

from __future__ import annotations

import time

import tailrace
from tailrace.group.members import enter
from tailrace.group.probing import HOLDS
from tests.cli import CommandLine
from tests.unit.cli_group.consuming import consumers, stuck
from tests.unit.group_store.consuming import lead, owner


def test_a_group_that_is_behind_and_nobody_consumes_is_not_well(cli: CommandLine) -> None:
    found = cli.run("status", status=4).stdout
    assert "group billing" in found
    assert "6 behind, and no consumer runs" in found
    assert "tailrace lag billing" in found
    cli.tail("orders", "--group", "billing")
    assert "1 group" in cli.run("status").stdout


def test_consumers_that_stand_by_are_well_and_told_of_with_the_scaling_that_helps(
    cli: CommandLine,
) -> None:
    with consumers(cli, 3):
        found = cli.json("status")
    assert found["well"]
    (note,) = found["notes"]
    assert note["what"] == "2 of 3 consumers stand by"
    assert note["remedy"] == "tailrace topic scale orders 3"


def test_explain_says_what_a_partition_waits_for(cli: CommandLine) -> None:
    assert cli.run("explain", "orders/0.0").stdout.startswith("UNATTENDED for billing")
    with consumers(cli, 1):
        consumed = cli.json("explain", "orders/0.0")
    assert consumed["headline"] == "CONSUMED for billing"
    cli.run("topic", "add-storage", "orders", "2", "--yes")
    ahead = cli.run("explain", "orders/1.0").stdout
    assert ahead.startswith("AHEAD: pushes to orders do not go there yet")
    assert "tailrace topic switch orders" in ahead
    cli.run("topic", "switch", "orders", "--yes")
    waiting = cli.run("explain", "orders/1.0").stdout
    assert waiting.startswith("WAITING for billing")
    assert "begins when orders/0.0 (" in waiting
    cli.tail("orders", "--group", "billing")
    finished = cli.json("explain", "orders/0.0")
    assert (finished["headline"], finished["waits"]) == ("FINISHED for billing", False)
    cli.run("group", "delete", "billing", "--yes")
    assert cli.json("explain", "orders/0.0")["headline"] == "SEALED, and no group shares it"
    assert cli.json("explain", "orders/1.0")["headline"] == "OPEN, and no group shares it"


def test_explain_names_what_is_no_partition(cli: CommandLine) -> None:
    assert "InvalidValue" in cli.run("explain", "orders/0.9", status=2).stderr
    assert "UnknownTopic" in cli.run("explain", "other/0.0", status=1).stderr


def test_explain_says_which_message_holds_up_its_key_and_how_to_pass_over_it(
    cli: CommandLine,
) -> None:
    with stuck(cli, "c2") as position:
        found = cli.json("explain", "orders/0.0")
        text = cli.run("explain", "orders/0.0").stdout
    assert (found["headline"], found["waits"]) == ("STUCK for billing", True)
    assert (
        f"stands still: {position} (key 'c2') was given back 2 times,"
        " nothing more of its key is handed out"
    ) in text
    skip = f"tailrace group skip billing {position} --reason TEXT"
    assert skip in [each["command"] for each in found["remedies"]]
    cli.run("group", "skip", "billing", position, "--reason", "bad", "--yes")
    assert "stands still" not in cli.run("explain", "orders/0.0").stdout


def test_explain_says_so_too_when_nobody_consumes_any_more(cli: CommandLine) -> None:
    with stuck(cli, "c2"):
        pass
    text = cli.run("explain", "orders/0.0").stdout
    assert text.startswith("UNATTENDED for billing")
    assert "stands still: orders/0.0@" in text


def test_a_group_with_a_message_that_holds_up_its_key_is_not_well(cli: CommandLine) -> None:
    with stuck(cli, "c1", "c2") as position:
        (problem,) = cli.json("status", status=4)["problems"]
    assert problem["subject"] == "group billing"
    assert problem["what"].startswith(f"stands still at {position} (key 'c")
    assert "and 1 more, " in problem["what"]
    assert problem["remedy"] == "tailrace explain orders/0.0"


def test_an_owner_that_gives_no_sign_of_life_is_not_well_and_explained(cli: CommandLine) -> None:
    short = {"TAILRACE_HUB__LEASE": "500ms"}
    with tailrace.open(cli.hub, sync="none") as hub:
        hold = hub.backend.hold(HOLDS + "p1", "pid 4 on till")
        enter(hub.backend, "billing", "b1", "p1", 0)
        owner(hub.backend, lead(hub.backend), "orders/0.0")
        hold.beat()
        deadline = time.monotonic() + 10
        while (hub.backend.silent_s(HOLDS + "p1") or 0.0) <= 0.5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        found = cli.run("status", status=4, env=short).stdout
        explained = cli.run("explain", "orders/0.0", env=short).stdout
        patient = cli.run("explain", "orders/0.0", env={"TAILRACE_HUB__LEASE": "10m"}).stdout
    assert "b1 has 1 stream and gave no sign of life for " in found
    assert "tailrace group show billing" in found
    assert explained.startswith("SILENT for billing")
    assert "pid 4 on till is stopped or cut off" in explained
    assert patient.startswith("CONSUMED for billing")


def test_a_group_whose_only_topic_was_deleted_says_so(cli: CommandLine) -> None:
    assert "deleted" not in cli.run("group", "list").stdout
    cli.run("topic", "delete", "orders", "--yes")
    assert "orders (deleted)" in cli.run("group", "list").stdout
    assert "orders (deleted)" in cli.run("group", "show", "billing").stdout
    assert cli.json("group", "list")[0]["topic_deleted"]
    found = cli.json("status")
    (note,) = found["notes"]
    assert note["what"] == "its topic orders was deleted"
    assert note["remedy"] == "tailrace group delete billing"
