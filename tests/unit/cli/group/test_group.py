"""`tailrace group list`, `show` and `history`, `lag`, `tail --group`: their output."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.command_line import CommandLine
from tests.support.waiting import until
from tests.unit.cli.group.billing_consumers import consumers, mark, stuck


def test_tail_with_a_group_continues_at_its_position(cli: CommandLine) -> None:
    assert cli.tail("orders", "--group", "billing") == [str(number) for number in range(4, 10)]
    assert cli.tail("orders", "--group", "billing") == []
    assert mark(cli) == 10


def test_tail_with_a_group_obeys_the_output_options(cli: CommandLine) -> None:
    assert cli.tail("orders", "--group", "billing", "-n", "1", "-f", "%p@%o %k %v") == [
        "orders/0.0@4 c1 4"
    ]
    (line,) = cli.tail("orders", "--group", "billing", "-n", "1", "-o", "json")
    message = json.loads(line)
    assert (message["id"], message["key"], message["value"]) == ("orders/0.0@5", "c2", 5)


def test_tail_accepts_group_and_topics_as_one_argument(cli: CommandLine) -> None:
    assert len(cli.tail("$shared/billing/orders")) == 6
    assert len(cli.tail("$shared/printing/ord*")) == 10
    assert cli.tail("orders", "--group", "auditing", "--from", "latest") == []
    names = [group["name"] for group in cli.json("group", "list")]
    assert names == ["auditing", "billing", "printing"]


def test_tail_refuses_options_and_topics_that_do_not_fit_the_group(cli: CommandLine) -> None:
    usage = cli.run("tail", "orders", "--group", "billing", "--to", "latest", status=2)
    assert "--to and --group cannot be combined" in usage.stderr
    other = cli.run("tail", "other", "--group", "billing", "--exit", status=1)
    assert other.stderr.startswith("GroupExists: ")


def test_groups_are_listed_with_their_lag(cli: CommandLine) -> None:
    (group,) = cli.json("group", "list")
    assert (group["name"], group["filter"]) == ("billing", "orders")
    assert (group["consumers"], group["open"], group["lag"]) == (0, 1, 6)
    assert "billing" in cli.run("group", "list").stdout
    cli.run("group", "delete", "billing", "--yes")
    assert cli.run("group", "list").stdout.startswith("no groups; create one by consuming")


def test_a_group_is_shown_with_its_consumers_and_partitions(cli: CommandLine) -> None:
    assert "no consumer runs" in cli.run("group", "show", "billing").stdout
    with consumers(cli, 2):
        shown = cli.json("group", "show", "billing")
        text = cli.run("group", "show", "billing").stdout
    assert [each["id"].startswith("till.") for each in shown["consumers"]] == [True, False]
    (stream,) = shown["partitions"]
    assert (stream["partition"], stream["state"], stream["mark"]) == ("orders/0.0", "open", 4)
    assert stream["owner"] == shown["consumers"][0]["id"]
    assert all(0 <= each["silent_s"] < 60 for each in shown["consumers"])
    assert "1 consumer on standby: 1 partition is open" in text


def test_a_consumer_has_the_same_name_in_every_command(cli: CommandLine) -> None:
    with consumers(cli, 1):
        shown = cli.json("group", "show", "billing")
        (name,) = [each["id"] for each in shown["consumers"]]
        (stream,) = cli.json("lag", "billing")
        explained = cli.run("explain", "orders/0.0").stdout
        until(lambda: cli.json("group", "history", "billing")[-1]["what"] == "granted")
        happened = cli.json("group", "history", "billing")
        said = cli.run("group", "history", "billing").stdout
    assert [each["owner"] for each in shown["partitions"]] == [stream["owner"]] == [name]
    assert f"owner {name}" in explained
    assert {name} == {line["consumer"] for line in happened[-2:]}
    assert [line["what"] for line in happened[-2:]] == ["joined", "granted"]
    assert f"{shown['leader']} leads" in said


def test_lag_lists_groups_or_the_partitions_of_one_group(cli: CommandLine) -> None:
    cli.run("tail", "orders", "--group", "printing", "-n", "1")
    lines = cli.run("lag").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["printing", "billing"]
    (stream,) = cli.json("lag", "billing")
    assert (stream["partition"], stream["lag"], stream["owner"]) == ("orders/0.0", 6, None)
    assert stream["oldest"] is not None
    assert "none" in cli.run("lag", "billing").stdout


def test_the_history_has_milliseconds_and_reasons_for_people(cli: CommandLine) -> None:
    cli.run("tail", "orders", "--group", "billing", "--exit")
    (term, joined, granted, *_) = cli.run("group", "history", "billing").stdout.splitlines()[1:]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z +term ", term)
    assert " joined " in joined
    assert granted.endswith("no consumer had it")


def test_history_lists_events(cli: CommandLine) -> None:
    cli.run("group", "seek", "billing", "earliest", "--yes")
    happened = [line["what"] for line in cli.json("group", "history", "billing")]
    assert happened[:3] == ["term", "joined", "granted"]
    assert happened[-1] == "seek"
    assert len(cli.json("group", "history", "billing", "-n", "2")) == 2
    assert "orders/0.0" in cli.run("group", "history", "billing").stdout


@pytest.mark.parametrize(
    "command",
    [
        ("group", "show", "biling"),
        ("group", "history", "biling"),
        ("group", "seek", "biling", "latest", "--yes"),
        ("group", "skip", "biling", "orders/0.0@6", "--reason", "bad", "--yes"),
        ("group", "delete", "biling", "--yes"),
        ("lag", "biling"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_an_unknown_group_is_named_with_the_nearest_known_one(
    cli: CommandLine, command: tuple[str, ...]
) -> None:
    error = cli.run(*command, status=1).stderr
    assert error.startswith("UnknownGroup: no group 'biling'")
    assert "did you mean 'billing'?" in error


def test_a_group_is_shown_with_the_messages_that_block_their_keys(cli: CommandLine) -> None:
    assert "failed message" not in cli.run("group", "show", "billing").stdout
    with stuck(cli, "c2") as position:
        (stream,) = cli.json("group", "show", "billing")["partitions"]
        text = cli.run("group", "show", "billing").stdout
    (failed,) = stream["failed"]
    assert (failed["position"], failed["key"], failed["attempts"]) == (position, "c2", 2)
    assert failed["consumer"] == stream["owner"]
    assert f"{position} (key 'c2')  2 times" in text
    assert f"tailrace group skip billing {position} --reason TEXT" in text
