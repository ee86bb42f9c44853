"""`tailrace group`, `lag`, `tail --group`, and what `status` and `explain` say of groups."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import tailrace
from tailrace.group.members import enter
from tailrace.group.probing import HOLDS
from tests.cli import CommandLine
from tests.unit.group.consuming import for_each
from tests.unit.group_store.consuming import lead, owner


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A topic of one partition with 10 messages, of which the group billing has done 4."""
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        orders = hub.create_topic("orders", int, partitions=1)
        orders.push_many([(f"c{number % 3}", number) for number in range(10)])
    cli.run("tail", "orders", "--group", "billing", "-n", "4")
    return cli


@contextmanager
def consumers(cli: CommandLine, count: int) -> Iterator[None]:
    """So many consumers of billing that run, one of which has a message in hand."""
    with tailrace.open(cli.hub, sync="none") as hub, ExitStack() as running:
        first = running.enter_context(hub.tail("orders", group="billing", id="till"))
        next(iter(first))
        for _ in range(count - 1):
            running.enter_context(hub.tail("orders", group="billing"))
        yield


@contextmanager
def stuck(cli: CommandLine, *keys: str) -> Iterator[str]:
    """A consumer of billing that runs, has done all it can, and failed once at each of some keys;
    where it did first."""

    def refuse(delivery: tailrace.Delivery[int]) -> None:
        if delivery.key in keys:
            delivery.nack()

    with (
        tailrace.open(cli.hub, sync="none") as hub,
        hub.tail("orders", group="billing", id="till", attempts=2, idle_timeout="50ms") as orders,
    ):
        positions = []
        for _ in keys:
            with pytest.raises(tailrace.DeliveryFailed) as caught:
                for_each(orders, refuse)
            positions.append(caught.value.position)
        yield min(positions)


def mark(cli: CommandLine) -> int:
    (stream,) = cli.json("group", "show", "billing")["streams"]
    return int(stream["mark"])


def test_tail_with_a_group_goes_on_where_it_was(cli: CommandLine) -> None:
    assert cli.tail("orders", "--group", "billing") == [str(number) for number in range(4, 10)]
    assert cli.tail("orders", "--group", "billing") == []
    assert mark(cli) == 10


def test_tail_with_a_group_prints_as_it_is_told(cli: CommandLine) -> None:
    assert cli.tail("orders", "--group", "billing", "-n", "1", "-f", "%p@%o %k %v") == [
        "orders/0.0@4 c1 4"
    ]
    (line,) = cli.tail("orders", "--group", "billing", "-n", "1", "-o", "json")
    message = json.loads(line)
    assert (message["id"], message["key"], message["value"]) == ("orders/0.0@5", "c2", 5)


def test_tail_takes_a_group_and_its_topics_as_one(cli: CommandLine) -> None:
    assert len(cli.tail("$shared/billing/orders")) == 6
    assert len(cli.tail("$shared/printing/ord*")) == 10
    assert cli.tail("orders", "--group", "auditing", "--from", "latest") == []
    names = [group["name"] for group in cli.json("group", "list")]
    assert names == ["auditing", "billing", "printing"]


def test_tail_refuses_what_a_group_has_not(cli: CommandLine) -> None:
    usage = cli.run("tail", "orders", "--group", "billing", "--to", "latest", status=2)
    assert "--to and --group exclude each other" in usage.stderr
    other = cli.run("tail", "other", "--group", "billing", "--exit", status=1)
    assert other.stderr.startswith("GroupExists: ")


def test_groups_are_listed_with_what_they_have_to_do(cli: CommandLine) -> None:
    (group,) = cli.json("group", "list")
    assert (group["name"], group["filter"]) == ("billing", "orders")
    assert (group["consumers"], group["open"], group["behind"]) == (0, 1, 6)
    assert "billing" in cli.run("group", "list").stdout
    cli.run("group", "delete", "billing", "--yes")
    assert cli.run("group", "list").stdout.startswith("no groups; a consumer makes one")


def test_a_group_is_shown_with_its_consumers_and_streams(cli: CommandLine) -> None:
    assert "no consumer runs" in cli.run("group", "show", "billing").stdout
    with consumers(cli, 2):
        shown = cli.json("group", "show", "billing")
        text = cli.run("group", "show", "billing").stdout
    assert [each["id"].startswith("till.") for each in shown["consumers"]] == [True, False]
    (stream,) = shown["streams"]
    assert (stream["partition"], stream["state"], stream["mark"]) == ("orders/0.0", "open", 4)
    assert stream["owner"] == shown["consumers"][0]["id"]
    assert all(0 <= each["silent_s"] < 60 for each in shown["consumers"])
    assert "1 stand by: only 1 streams are open" in text


def test_a_consumer_has_the_same_name_wherever_it_is_named(cli: CommandLine) -> None:
    with consumers(cli, 1):
        shown = cli.json("group", "show", "billing")
        (name,) = [each["id"] for each in shown["consumers"]]
        (stream,) = cli.json("lag", "billing")
        explained = cli.run("explain", "orders/0.0").stdout
        happened = cli.json("group", "history", "billing")
        said = cli.run("group", "history", "billing").stdout
    assert [each["owner"] for each in shown["streams"]] == [stream["owner"]] == [name]
    assert f"{name} has it" in explained
    assert {name} == {line["consumer"] for line in happened[-2:]}
    assert [line["what"] for line in happened[-2:]] == ["joined", "granted"]
    assert f"{shown['leader']} leads" in said


def test_lag_tells_groups_and_the_streams_of_one(cli: CommandLine) -> None:
    cli.run("tail", "orders", "--group", "printing", "-n", "1")
    lines = cli.run("lag").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["printing", "billing"]
    (stream,) = cli.json("lag", "billing")
    assert (stream["partition"], stream["behind"], stream["owner"]) == ("orders/0.0", 6, None)
    assert stream["oldest"] is not None
    assert "nobody" in cli.run("lag", "billing").stdout


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


def test_the_history_has_milliseconds_and_reasons_for_people(cli: CommandLine) -> None:
    cli.run("tail", "orders", "--group", "billing", "--exit")
    (term, joined, granted, *_) = cli.run("group", "history", "billing").stdout.splitlines()[1:]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z +term ", term)
    assert " joined " in joined
    assert granted.endswith("nobody had it")


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


def test_history_tells_what_happened(cli: CommandLine) -> None:
    cli.run("group", "seek", "billing", "earliest", "--yes")
    happened = [line["what"] for line in cli.json("group", "history", "billing")]
    assert happened[:3] == ["term", "joined", "granted"]
    assert happened[-1] == "seek"
    assert len(cli.json("group", "history", "billing", "-n", "2")) == 2
    assert "orders/0.0" in cli.run("group", "history", "billing").stdout


def test_a_deleted_group_is_forgotten_and_that_is_audited(cli: CommandLine) -> None:
    assert "6 messages that it has not" in cli.run("group", "delete", "billing", "--dry-run").stdout
    assert mark(cli) == 4
    cli.run("group", "delete", "billing", "--yes", "--reason", "closed")
    assert cli.json("group", "list") == []
    (entry,) = cli.json("audit", "--target", "billing")
    assert (entry["command"], entry["reason"]) == ("group delete", "closed")
    assert entry["before"] == {"filter": "orders", "orders/0.0": 4}


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


def test_a_group_is_shown_with_the_messages_that_hold_up_their_keys(cli: CommandLine) -> None:
    assert "stands still" not in cli.run("group", "show", "billing").stdout
    with stuck(cli, "c2") as position:
        (stream,) = cli.json("group", "show", "billing")["streams"]
        text = cli.run("group", "show", "billing").stdout
    (failed,) = stream["failed"]
    assert (failed["position"], failed["key"], failed["attempts"]) == (position, "c2", 2)
    assert failed["consumer"] == stream["owner"]
    assert f"{position} (key 'c2')  2 times" in text
    assert f"tailrace group skip billing {position} --reason TEXT" in text


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
