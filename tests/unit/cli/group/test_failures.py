"""What operators see of messages that fail, while they are retried and after: status, show, dlq."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace import Retry, readers, writers
from tailrace.operations.status import status
from tests.support.command_line import CommandLine
from tests.support.waiting import until
from tests.unit.cli.group.billing_consumers import mark

LATER = Retry(first="1h", max="1h")
ONCE = Retry(attempts=1)


def refuse(*keys: str) -> Callable[[tailrace.Delivery[Any]], None]:
    """Return a handler that raises for some keys."""

    def handler(delivery: tailrace.Delivery[Any]) -> None:
        if delivery.key in keys:
            raise ValueError(f"no stock for {delivery.value}")

    return handler


@contextmanager
def worker(
    cli: CommandLine, *keys: str, topic: str = "orders", **options: Any
) -> Iterator[tailrace.Consumer[Any]]:
    """Run a worker of billing that refuses some keys, by default without a second attempt soon."""
    with tailrace.open(cli.hub, sync="none") as hub:
        consumer = hub.tail(topic, group="billing")
        consumer.start(refuse(*keys), **(options or {"retry": LATER}))
        try:
            yield consumer
        finally:
            consumer.shutdown()


def problems(cli: CommandLine) -> list[dict[str, str]]:
    """Return the problems that status names, whatever its exit status is."""
    with tailrace.open(cli.hub, sync="none") as hub:
        return [
            {"subject": each.subject, "what": each.what, "remedy": each.remedy}
            for each in status(hub).problems
        ]


def failing(cli: CommandLine) -> list[dict[str, Any]]:
    """Return the messages that group show lists."""
    partitions = cli.json("group", "show", "billing")["partitions"]
    return [each for partition in partitions for each in partition["failed"]]


def test_a_message_that_is_being_retried_is_shown_with_its_error_and_its_next_attempt(
    cli: CommandLine,
) -> None:
    with worker(cli, "c2"):
        until(lambda: failing(cli))
        (failed,) = failing(cli)
        text = cli.run("group", "show", "billing").stdout
        found = cli.run("status", status=4).stdout
        explained = cli.run("explain", "orders/0.0").stdout
    position = failed["position"]
    assert (failed["key"], failed["attempts"]) == ("c2", 1)
    assert failed["error"].startswith("ValueError: no stock for ")
    assert failed["next_attempt"] > failed["time"]
    assert f"{position} (key 'c2')  1 time" in text
    assert failed["error"] in text
    assert f"retrying {position} (key 'c2'), failed 1 time" in found
    assert explained.startswith("RETRYING for billing")
    assert (
        f"{position} (key 'c2') failed 1 time; its key waits for the next attempt at" in explained
    )
    assert f"last error: {failed['error']}" in explained
    assert f"tailrace group skip billing {position} --reason TEXT" in explained


def test_a_message_that_succeeds_at_last_is_not_shown_any_more(cli: CommandLine) -> None:
    healed: list[bool] = []

    def handler(delivery: tailrace.Delivery[Any]) -> None:
        if delivery.key == "c2" and not healed:
            raise ValueError("no stock")

    with tailrace.open(cli.hub, sync="none") as hub:
        retry = Retry(first="20ms", max="20ms")
        consumer = hub.tail("orders", group="billing").start(handler, retry=retry)
        until(lambda: failing(cli))
        healed.append(True)
        until(lambda: not failing(cli) and mark(cli) == 10)
        consumer.shutdown()
    assert cli.json("status")["well"]


def test_all_that_waits_behind_a_failing_message_is_counted_after_a_scaling(
    cli: CommandLine,
) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        trades = hub.create_topic("trades", int, partitions=1)
        trades.push_many([("c1", 0), ("c1", 1), ("c1", 2), ("c2", 3)])
        trades.scale(4)
        trades.push_many([(f"k{number % 50}", number) for number in range(4_358)])
    with tailrace.open(cli.hub, sync="none") as hub:
        consumer = hub.tail("trades", group="trading").start(refuse("c1"), retry=LATER)

        def shown() -> Any:
            partitions = cli.json("group", "show", "trading")["partitions"]
            return next(each for each in partitions if each["partition"] == "trades/0.0")

        until(lambda: [failed["behind"] for failed in shown()["failed"]] == [2])
        partition = shown()
        status = cli.run("status", status=4).stdout
        table = cli.run("group", "show", "trading").stdout
        explained = cli.run("explain", "trades/0.0").stdout
        consumer.shutdown()
    assert (partition["followers"], partition["followers_lag"]) == (4, 4_358)
    waiting = "4,360 messages wait behind it, 4,358 in 4 partitions that follow trades/0.0"
    assert f"retrying trades/0.0@0 (key 'c1'), failed 1 time, {waiting}, lag 3" in status
    assert waiting in explained
    assert "  4,360  " in table


def test_all_that_waits_is_counted_over_two_scalings(cli: CommandLine) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        trades = hub.create_topic("trades", int, partitions=1)
        trades.push_many([("c1", 0), ("c1", 1)])
        trades.scale(2)
        trades.push_many([(f"k{number}", number) for number in range(30)])
        trades.scale(4)
        trades.push_many([(f"k{number}", number) for number in range(500)])
        consumer = hub.tail("trades", group="trading").start(refuse("c1"), retry=LATER)

        def shown() -> Any:
            partitions = cli.json("group", "show", "trading")["partitions"]
            return next(each for each in partitions if each["partition"] == "trades/0.0")

        until(lambda: [failed["behind"] for failed in shown()["failed"]] == [1])
        partition = shown()
        explained = cli.run("explain", "trades/0.0").stdout
        consumer.shutdown()
    assert (partition["followers"], partition["followers_lag"]) == (6, 530)
    assert "531 messages wait behind it, 530 in 6 partitions that follow trades/0.0" in explained


def test_dead_letters_of_a_group_are_listed_redelivered_and_discarded(cli: CommandLine) -> None:
    with worker(cli, "c1", "c2", retry=ONCE, on_failed="dead-letter") as consumer:
        until(lambda: consumer.stats().acknowledged == 6)
    letters = cli.json("dlq", "billing", "list")
    assert {letter["consumer"] for letter in letters} == {"billing"}
    (by_error,) = cli.json("dlq", "billing", "list", "--by", "error")
    assert by_error["count"] == len(letters)
    (problem,) = problems(cli)
    assert problem["subject"] == "group billing"
    assert problem["what"] == f"{len(letters)} pending dead letters"
    assert problem["remedy"] == "tailrace dlq billing list --by error"
    first, second, *rest = [letter["origin"] for letter in letters]
    shown = cli.run("dlq", "billing", "show", first).stdout
    assert "ValueError: no stock for " in shown
    assert "key       c" in shown
    cli.run("dlq", "billing", "redeliver", first, "--reason", "the till works")
    cli.run("dlq", "billing", "discard", second, "--reason", "paid in cash")
    assert len(cli.json("dlq", "billing", "list")) == len(rest)
    handled = cli.tail("orders", "--group", "billing")
    assert len(handled) == 1
    done = {(each["command"], each["reason"]) for each in cli.json("audit")}
    assert {("dlq redeliver", "the till works"), ("dlq discard", "paid in cash")} <= done


def test_a_letter_whose_topic_or_group_was_deleted_is_not_redelivered(cli: CommandLine) -> None:
    with worker(cli, "c1", retry=ONCE, on_failed="dead-letter") as consumer:
        until(lambda: consumer.stats().acknowledged == 6)
    (first, *_) = cli.json("dlq", "billing", "list")
    planned = cli.run("group", "delete", "billing", "--yes").stdout
    assert "2 pending dead letters" in planned
    refused = cli.run("dlq", "billing", "redeliver", first["position"], status=2).stderr
    assert "billing was deleted" in refused
    assert "tailrace dlq billing discard" in refused
    assert "0 dead letters redelivered" in cli.run("dlq", "billing", "redeliver", "--all").stdout


@pytest.mark.parametrize("name", ["billing", "group:billing"])
def test_a_group_without_dead_letters_has_an_empty_list(cli: CommandLine, name: str) -> None:
    assert cli.run("dlq", name, "list").stdout == "no pending dead letters\n"
    assert cli.json("dlq", name, "list") == cli.json("dlq", name, "list", "--by", "error") == []
    assert "0 dead letters redelivered" in cli.run("dlq", name, "redeliver", "--all").stdout
    for verb in (["show"], ["redeliver"], ["discard", "--reason", "no"]):
        refused = cli.run("dlq", name, *verb, "orders/0.0@1", status=2).stderr
        assert f"a pending dead letter of {name}" in refused


@pytest.mark.parametrize(
    ("name", "suggested"),
    [("biling", "billing"), ("group:biling", "billing"), ("pipeline:billing", "billing"),
     ("lake/crn", "lake/crm"), ("laek", "lake"), ("no/such/thing", "")],
)  # fmt: skip
def test_an_unknown_consumer_is_refused_with_the_known_ones(
    cli: CommandLine, tmp_path: Path, name: str, suggested: str
) -> None:
    (tmp_path / "sales.jsonl").write_text('{"id": 1}\n')
    lake = tailrace.Pipeline("lake", readers.file(f"{tmp_path}/*.jsonl"), engine="direct")
    lake.write("crm", writers.file(str(tmp_path / "out")))
    with tailrace.open(cli.hub, sync="none") as hub:
        lake.run(hub, once=True)
    refused = cli.run("dlq", name, "list", status=2).stderr
    assert f"no consumer '{name}' in {cli.hub}" in refused
    assert "valid: billing, lake, lake/crm" in refused
    assert ("did you mean" in refused) == bool(suggested)
    assert not suggested or f"did you mean '{suggested}'?" in refused


def test_an_unknown_consumer_of_a_hub_without_consumers_is_told_that_there_are_none(
    tmp_path: Path,
) -> None:
    cli = CommandLine(tmp_path / "new")
    cli.run("topic", "create", "orders")
    refused = cli.run("dlq", "billing", "list", status=2).stderr
    assert "no consumer 'billing' in" in refused
    assert "no group, pipeline or source has run here" in refused
