"""`tailrace explain` of a whole topic and a whole group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace import readers, writers
from tests.support.command_line import CommandLine
from tests.support.waiting import until
from tests.unit.cli.group.billing_consumers import consumers, refuse_two, stuck


def facts(found: dict[str, Any], name: str) -> list[str]:
    return [each["what"] for each in found["facts"] if each["name"] == name]


def commands(found: dict[str, Any]) -> list[str]:
    return [each["command"] for each in found["remedies"]]


def test_a_topic_that_nothing_consumes_is_explained_with_its_size(cli: CommandLine) -> None:
    cli.run("topic", "create", "empty")
    found = cli.json("explain", "empty")
    assert found["headline"] == "EMPTY, nothing consumes it"
    assert facts(found, "holds") == ["0 messages (0 bytes) in 1 storage topic"]
    assert facts(found, "pushes") == ["go to storage 0, which has 4 partitions"]
    assert (found["waits"], found["remedies"]) == (False, [])


def test_a_topic_is_explained_with_its_groups_and_their_lag(cli: CommandLine) -> None:
    cli.tail("orders", "--group", "mail")
    found = cli.json("explain", "orders")
    assert found["headline"] == "UNATTENDED for billing, IDLE for mail"
    assert facts(found, "type") == ["int"]
    (billing,) = facts(found, "billing")
    assert billing.startswith("UNATTENDED since 20")
    assert billing.endswith("Z: no consumer runs, lag 6")
    assert facts(found, "mail") == ["IDLE: every message is acknowledged, no consumer runs"]
    assert "tailrace explain billing --group" in commands(found)
    assert found["waits"]


def test_a_group_without_consumers_is_explained_with_its_lag_and_what_helps(
    cli: CommandLine,
) -> None:
    found = cli.json("explain", "billing")
    assert found["headline"].startswith("UNATTENDED since 20")
    assert facts(found, "consumes") == ["orders: 1 topic, 1 partition (1 open)"]
    (lag,) = facts(found, "lag")
    assert lag.startswith("6 messages in orders/0.0; the oldest is of 20")
    assert commands(found) == [
        "tailrace tail orders --group billing",
        "tailrace group seek billing latest",
        "tailrace group delete billing",
    ]


def test_a_group_is_explained_with_the_owners_of_its_partitions(cli: CommandLine) -> None:
    with consumers(cli, 2):
        found = cli.json("explain", "billing")
        topic = cli.json("explain", "orders")
    assert found["headline"] == "CONSUMING: lag 6, 2 consumers"
    assert topic["headline"] == "CONSUMING for billing"
    (leader,) = facts(found, "leader")
    assert leader.startswith("process ")
    owns, by = facts(found, "consumer")
    assert owns.startswith("till.")
    assert "owns orders/0.0 (lag 6); process " in owns
    assert "stands by without a partition" in by
    assert commands(found) == ["tailrace lag billing --watch"]


def test_a_blocked_group_is_explained_with_the_message_the_time_and_the_skip(
    cli: CommandLine,
) -> None:
    with stuck(cli, "c2") as position:
        found, topic = cli.json("explain", "billing"), cli.json("explain", "orders")
        text = cli.run("explain", "billing").stdout
    assert text.startswith("BLOCKED since 20")
    assert topic["headline"] == "BLOCKED for billing"
    for each in (found, topic):
        (blocked,) = facts(each, "blocked")
        assert blocked.startswith("since 20")
        assert f"{position} (key 'c2') failed 2 times; its key is blocked" in blocked
        assert f"tailrace group skip billing {position} --reason TEXT" in commands(each)
        assert each["waits"]


def test_partitions_that_wait_are_listed_with_the_one_they_wait_for(cli: CommandLine) -> None:
    cli.run("topic", "scale", "orders", "2", "--yes")
    for subject in ("orders", "billing"):
        found = cli.json("explain", subject)
        assert facts(found, "waits") == ["orders/1.0, orders/1.1 wait for orders/0.0 (lag 6)"]


def test_a_group_that_is_done_is_caught_up_and_waits_for_nothing(cli: CommandLine) -> None:
    cli.tail("orders", "--group", "billing")
    found = cli.json("explain", "billing")
    assert found["headline"] == "IDLE: every message is acknowledged, no consumer runs"
    assert facts(found, "lag") == ["none: every message is acknowledged"]
    assert (found["waits"], found["remedies"]) == (False, [])


def test_a_partition_of_a_group_that_is_done_is_idle_as_its_group_is(cli: CommandLine) -> None:
    cli.tail("orders", "--group", "billing")
    found = cli.json("explain", "orders/0.0")
    assert (found["headline"], found["waits"]) == ("IDLE for billing", False)
    assert facts(found, "billing") == ["every message is acknowledged, no consumer runs"]


def test_a_group_whose_topic_is_deleted_says_so(cli: CommandLine) -> None:
    cli.run("topic", "delete", "orders", "--yes")
    found = cli.json("explain", "billing")
    assert found["headline"] == "TOPIC DELETED: topic 'orders' is deleted"
    assert commands(found) == ["tailrace group delete billing"]


def test_a_name_that_a_topic_and_a_group_have_means_the_topic(cli: CommandLine) -> None:
    cli.tail("orders", "--group", "orders")
    topic = cli.json("explain", "orders")
    assert topic["headline"].startswith("UNATTENDED for billing, IDLE for orders")
    assert commands(topic).count("tailrace explain orders --group") == 1
    assert cli.json("explain", "orders", "--group")["headline"].startswith("IDLE")


@pytest.mark.parametrize(
    ("subject", "helps"),
    [("billng", "did you mean 'billing'?"), ("oders", "did you mean 'orders'?")],
)
def test_an_unknown_name_is_refused_with_a_similar_one(
    cli: CommandLine, subject: str, helps: str
) -> None:
    assert helps in cli.run("explain", subject, status=2).stderr
    assert "UnknownGroup" in cli.run("explain", subject, "--group", status=1).stderr


def test_a_commit_log_is_explained_with_its_pipeline_and_writers(
    cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "sales.jsonl").write_bytes(msgspec.json.encode({"id": 1}) + b"\n")
    lake = tailrace.Pipeline("lake", readers.file(str(tmp_path / "*.jsonl")), engine="direct")
    lake.write("files", writers.file(str(tmp_path / "out")))
    with tailrace.open(cli.hub) as hub:
        lake.run(hub, once=True)
        log = next(name for name in hub.topics() if name.startswith("lake") and "dead" not in name)
    found = cli.json("explain", log)
    assert found["headline"] == "STOPPED for lake, STOPPED for lake/files"
    (lake_fact,) = facts(found, "lake")
    assert lake_fact.startswith("the topic is its commit log; it does not run")
    assert "lag 0" in facts(found, "lake/files")[0]
    assert "tailrace explain lake" in commands(found)
    assert cli.json("explain", "lake")["headline"].startswith("STOPPED: pipeline lake does not run")


def test_a_message_that_is_retried_is_named_with_its_error_and_next_attempt(
    cli: CommandLine,
) -> None:
    retry = tailrace.Retry(first="1h", max="1h")
    with tailrace.open(cli.hub, sync="none") as hub:
        consumer = hub.tail("orders", int, group="billing").start(refuse_two, retry=retry)
        until(lambda: facts(cli.json("explain", "billing"), "retrying"))
        found, topic = cli.json("explain", "billing"), cli.json("explain", "orders")
        consumer.shutdown()
    assert found["headline"].startswith("RETRYING since 20")
    (retrying,) = facts(found, "retrying")
    assert "(key 'c2') failed 1 time; its key waits for the next attempt at " in retrying
    assert "no stock" in retrying
    assert topic["headline"] == "RETRYING for billing"


@pytest.mark.parametrize(
    "options",
    [
        {"retry": tailrace.Retry(first="1h", max="1h")},
        {"retry": tailrace.Retry(attempts=1), "on_failed": lambda _failed: None},
    ],
    ids=["retried", "stuck"],
)
def test_a_failed_message_of_a_group_without_consumers_waits_for_one(
    cli: CommandLine, options: dict[str, Any]
) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        consumer = hub.tail("orders", int, group="billing", id="till")
        consumer.start(refuse_two, **options)
        until(lambda: consumer.stats().nacked)
        consumer.shutdown()
    group, topic, partition = (
        cli.json("explain", name) for name in ("billing", "orders", "orders/0.0")
    )
    assert group["headline"].startswith("UNATTENDED since 20")
    for each in (group, topic):
        (failed,) = facts(each, "failed")
        assert "(key 'c2') failed 1 time; the next owner of orders/0.0 delivers it again" in failed
        assert "no stock" in failed
        assert "tailrace tail orders --group billing" in commands(each)
    assert topic["headline"] == partition["headline"] == "UNATTENDED for billing"
    assert "next attempt" not in " ".join(each["what"] for each in partition["facts"])
    status = cli.run("status", status=4).stdout
    assert "waiting for a consumer at orders/0.0@" in status
    assert "none: no owner" in cli.run("group", "show", "billing").stdout
    (shown,) = cli.json("group", "show", "billing")["partitions"]
    assert [each["next_attempt"] for each in shown["failed"]] == [None]


def test_the_dead_letters_of_a_group_are_counted(cli: CommandLine) -> None:
    once = tailrace.Retry(attempts=1)
    with tailrace.open(cli.hub, sync="none") as hub:
        consumer = hub.tail("orders", int, group="billing", until="end")
        consumer.run(refuse_two, retry=once, on_failed="dead-letter")
    found = cli.json("explain", "billing")
    assert facts(found, "set aside") == ["2 pending dead letters"]
    assert "tailrace dlq billing list --by error" in commands(found)
