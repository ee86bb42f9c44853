"""`tailrace status` and `explain` of groups: lag, stuck messages, silent owners, standby."""

from __future__ import annotations

import time

import tailrace
from tailrace.group.store.presence import HOLDS, enter
from tests.support.command_line import CommandLine
from tests.support.groups import lead, owner
from tests.unit.cli.group.billing_consumers import consumers, stuck


def test_a_group_with_lag_and_without_consumers_is_not_well(cli: CommandLine) -> None:
    found = cli.run("status", status=4).stdout
    assert "group billing" in found
    assert "lag 6, no consumer runs" in found
    assert "tailrace lag billing" in found
    cli.tail("orders", "--group", "billing")
    assert "1 group" in cli.run("status").stdout


def test_standby_consumers_are_well_and_reported_with_the_scaling_that_helps(
    cli: CommandLine,
) -> None:
    with consumers(cli, 3):
        found = cli.json("status")
    assert found["well"]
    (note,) = found["notes"]
    assert note["what"] == "2 of 3 consumers on standby"
    assert note["remedy"] == "tailrace topic scale orders 3"


def test_explain_names_the_partitions_that_a_partition_waits_for(cli: CommandLine) -> None:
    assert cli.run("explain", "orders/0.0").stdout.startswith("UNATTENDED for billing")
    with consumers(cli, 1):
        consumed = cli.json("explain", "orders/0.0")
    assert consumed["headline"] == "CONSUMED for billing"
    cli.run("topic", "add-storage", "orders", "2", "--yes")
    ahead = cli.run("explain", "orders/1.0").stdout
    assert ahead.startswith("UNUSED: pushes to orders go to storage 0")
    assert "tailrace topic switch orders" in ahead
    cli.run("topic", "switch", "orders", "--yes")
    waiting = cli.run("explain", "orders/1.0").stdout
    assert waiting.startswith("WAITING for billing")
    assert "to keep the order of each key it waits for orders/0.0 (lag " in waiting
    cli.tail("orders", "--group", "billing")
    finished = cli.json("explain", "orders/0.0")
    assert (finished["headline"], finished["waits"]) == ("FINISHED for billing", False)
    cli.run("group", "delete", "billing", "--yes")
    assert cli.json("explain", "orders/0.0")["headline"] == "SEALED, nothing consumes it"
    assert cli.json("explain", "orders/1.0")["headline"] == "OPEN, nothing consumes it"


def test_explain_refuses_an_unknown_partition_by_name(cli: CommandLine) -> None:
    assert "InvalidValue" in cli.run("explain", "orders/0.9", status=2).stderr
    assert "UnknownTopic" in cli.run("explain", "other/0.0", status=1).stderr


def test_explain_names_the_message_that_blocks_its_key_and_how_to_skip_it(
    cli: CommandLine,
) -> None:
    with stuck(cli, "c2") as position:
        found = cli.json("explain", "orders/0.0")
        text = cli.run("explain", "orders/0.0").stdout
    assert (found["headline"], found["waits"]) == ("STUCK for billing", True)
    assert f"stuck: {position} (key 'c2') failed 2 times; its key is blocked" in text
    skip = f"tailrace group skip billing {position} --reason TEXT"
    assert skip in [each["command"] for each in found["remedies"]]
    cli.run("group", "skip", "billing", position, "--reason", "bad", "--yes")
    assert "failed" not in cli.run("explain", "orders/0.0").stdout


def test_explain_names_the_blocking_message_also_without_consumers(cli: CommandLine) -> None:
    with stuck(cli, "c2"):
        pass
    text = cli.run("explain", "orders/0.0").stdout
    assert text.startswith("UNATTENDED for billing")
    assert "failed: orders/0.0@" in text


def test_a_group_with_a_message_that_blocks_its_key_is_not_well(cli: CommandLine) -> None:
    with stuck(cli, "c1", "c2") as position:
        (problem,) = cli.json("status", status=4)["problems"]
    assert problem["subject"] == "group billing"
    assert problem["what"].startswith(f"stuck at {position} (key 'c")
    assert "and 1 more, " in problem["what"]
    assert problem["remedy"] == "tailrace explain orders/0.0"


def test_an_owner_without_heartbeats_is_not_well_and_explained(cli: CommandLine) -> None:
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
        whole = cli.run("explain", "billing", env=short).stdout
        patient = cli.run("explain", "orders/0.0", env={"TAILRACE_HUB__LEASE": "10m"}).stdout
    assert "b1 owns 1 partition, no heartbeat for " in found
    assert "tailrace group show billing" in found
    assert explained.startswith("SILENT for billing")
    assert "pid 4 on till is stopped or disconnected" in explained
    assert whole.startswith("SILENT: b1 owns partitions, no heartbeat for ")
    assert patient.startswith("CONSUMED for billing")


def test_a_group_whose_only_topic_was_deleted_is_shown_with_that(cli: CommandLine) -> None:
    assert "deleted" not in cli.run("group", "list").stdout
    cli.run("topic", "delete", "orders", "--yes")
    assert "orders (deleted)" in cli.run("group", "list").stdout
    assert "orders (deleted)" in cli.run("group", "show", "billing").stdout
    assert cli.json("group", "list")[0]["topic_deleted"]
    found = cli.json("status")
    (note,) = found["notes"]
    assert note["what"] == "its topic orders was deleted"
    assert note["remedy"] == "tailrace group delete billing"
