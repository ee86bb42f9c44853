"""`tailrace explain` of a message: what each group has done with it, or what it waits for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tailrace
from tailrace.message import Op
from tests.support.command_line import CommandLine
from tests.support.waiting import until
from tests.unit.cli.group.billing_consumers import consumers, refuse_two, stuck

LATER = tailrace.Retry(first="1h", max="1h")
ONCE = tailrace.Retry(attempts=1)


def facts(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["what"] for each in found["facts"]}


def commands(found: dict[str, Any]) -> list[str]:
    return [each["command"] for each in found["remedies"]]


def test_a_message_is_explained_with_its_key_size_and_time_and_what_each_group_did(
    cli: CommandLine,
) -> None:
    cli.tail("orders", "--group", "mail")
    found = cli.json("explain", "orders/0.0@9")
    assert (found["subject"], found["waits"]) == ("orders/0.0@9", True)
    assert found["headline"] == "UNATTENDED for billing, ACKNOWLEDGED for mail"
    assert facts(found)["key"] == "'c0'"
    assert facts(found)["message"].startswith("1 byte, of 20")
    assert facts(found)["billing"] == (
        "not acknowledged; orders/0.0: lag 6; no consumer of the group runs"
    )
    assert facts(found)["mail"] == "handled or skipped"
    assert commands(found) == ["tailrace explain orders/0.0"]
    done = cli.json("explain", "orders/0.0@0")
    assert (done["headline"], done["waits"]) == (
        "ACKNOWLEDGED for billing, ACKNOWLEDGED for mail",
        False,
    )


def test_a_message_before_the_start_of_a_group_may_never_have_been_delivered(
    cli: CommandLine,
) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        list(hub.tail("orders", group="late", start="latest", until="end"))
    why = facts(cli.json("explain", "orders/0.0@9"))["late"]
    assert why == "handled or skipped, or before the start of the group (latest)"


def test_a_message_of_a_topic_without_groups_is_stored(cli: CommandLine) -> None:
    cli.run("topic", "create", "notes", "-p", "1", "--type", "text")
    cli.run("push", "notes", "hi")
    found = cli.json("explain", "notes/0.0@0")
    assert (found["headline"], found["waits"]) == (
        "STORED, nothing consumes its topic",
        False,
    )
    assert facts(found) == {"key": "none", "message": facts(found)["message"]}


def test_a_message_is_in_flight_or_has_others_before_it(cli: CommandLine) -> None:
    with consumers(cli, 1):
        first, later = (cli.json("explain", f"orders/0.0@{offset}") for offset in (4, 9))
    assert first["headline"] == later["headline"] == "PENDING for billing"
    next_one = "in flight, or the next to be delivered; owner till."
    assert facts(first)["billing"].startswith(next_one)
    behind = "in flight, or behind 5 offsets that the owner handles first; owner till."
    assert facts(later)["billing"].startswith(behind)


def test_a_failed_message_is_named_and_those_of_its_key_wait_behind_it(cli: CommandLine) -> None:
    with stuck(cli, "c2") as position:
        failed = cli.json("explain", position)
        behind = cli.json("explain", "orders/0.0@8")
    assert position == "orders/0.0@5"
    assert failed["headline"] == "STUCK for billing"
    assert "(key 'c2') failed 2 times; its key is blocked" in facts(failed)["billing"]
    skip = "tailrace group skip billing orders/0.0@5 --reason TEXT"
    assert skip in commands(failed)
    assert behind["headline"] == "WAITING for billing"
    assert facts(behind)["billing"].startswith("of the same key as orders/0.0@5 (key 'c2') failed")
    assert commands(behind) == [skip]
    assert cli.json("explain", "orders/0.0@4")["headline"] == "ACKNOWLEDGED for billing"


def test_a_failed_message_without_consumers_is_unattended(cli: CommandLine) -> None:
    with stuck(cli, "c2") as position:
        pass
    found = cli.json("explain", position)
    assert found["headline"] == "UNATTENDED for billing"
    assert "the next owner of orders/0.0 delivers it again" in facts(found)["billing"]


def test_a_message_that_is_retried_has_its_next_attempt(cli: CommandLine) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        consumer = hub.tail("orders", int, group="billing").start(refuse_two, retry=LATER)
        until(lambda: cli.json("explain", "orders/0.0@5")["headline"] == "RETRYING for billing")
        found = cli.json("explain", "orders/0.0@5")
        consumer.shutdown()
    assert "waits for the next attempt at" in facts(found)["billing"]


def test_a_message_waits_for_the_partitions_that_its_own_follows(cli: CommandLine) -> None:
    cli.run("topic", "scale", "orders", "2", "--yes")
    with tailrace.open(cli.hub, sync="none") as hub:
        receipt = hub.topic("orders").push(10, key="c1")
    found = cli.json("explain", receipt.id)
    assert found["headline"] == "WAITING for billing"
    assert "it waits for orders/0.0 (lag 6)" in facts(found)["billing"]


def test_a_dead_letter_is_found_by_the_position_of_its_message_also_after_a_redelivery(
    cli: CommandLine,
) -> None:
    def run() -> None:
        with tailrace.open(cli.hub, sync="none") as hub:
            consumer = hub.tail("orders", int, group="billing", until="end")
            consumer.run(refuse_two, retry=ONCE, on_failed="dead-letter")

    run()
    found = cli.json("explain", "orders/0.0@5")
    assert found["headline"] == "DEAD LETTER for billing"
    letter = "tailrace.dead-letters.billing/0.0@0"
    assert facts(found)["billing"] == f"set aside as {letter}; ValueError: no stock"
    assert commands(found) == [f"tailrace dlq billing redeliver {letter}"]
    cli.run("dlq", "billing", "redeliver", "orders/0.0@5")
    assert cli.json("explain", "orders/0.0@5")["headline"] == "ACKNOWLEDGED for billing"
    run()
    again = cli.json("explain", "orders/0.0@5")
    assert again["headline"] == "DEAD LETTER for billing"
    assert "tailrace.dead-letters.billing/0.0@2" in facts(again)["billing"]


def test_a_redelivered_message_is_for_its_group_alone(cli: CommandLine) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        consumer = hub.tail("orders", int, group="billing", until="end")
        consumer.run(refuse_two, retry=ONCE, on_failed="dead-letter")
    cli.run("tail", "orders", "--group", "mail", "--exit")
    cli.run("dlq", "billing", "redeliver", "orders/0.0@5")
    found = cli.json("explain", "orders/0.0@10")
    assert found["headline"] == "UNATTENDED for billing, LEFT OUT for mail"
    assert facts(found)["redelivered"] == (
        "a dead letter, for billing alone; it was orders/0.0@5 at first"
    )
    assert facts(found)["mail"] == "only billing receives it"


def test_a_control_record_is_named_as_one(cli: CommandLine) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        batch = pa.RecordBatch.from_pydict({"value": [b"{}"], "op": [Op.NOOP]})
        hub.topic("orders").append(batch)
    found = cli.json("explain", "orders/0.0@10")
    assert facts(found)["control"].startswith("noop (copy); groups receive it only if they ask")


@pytest.mark.parametrize(
    ("position", "status", "error"),
    [
        ("orders/0.0@10", 1, "no record at orders/0.0@10 · valid: 0 <= offset < 10"),
        ("orders/0.7@0", 2, "partition of storage topic 0 of 'orders' is 7 · valid: 0 to 0"),
        ("order/0.0@0", 1, "did you mean 'orders'?"),
        ("orders@4", 2, "TOPIC/STORAGE.PARTITION@OFFSET, for example orders/1.7@42"),
    ],
)
def test_a_position_without_a_message_is_refused_with_what_is_valid(
    cli: CommandLine, position: str, status: int, error: str
) -> None:
    assert error in cli.run("explain", position, status=status).stderr
