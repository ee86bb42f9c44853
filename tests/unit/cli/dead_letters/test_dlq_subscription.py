"""`tailrace dlq` for subscriptions: letters are listed, and workers redeliver or discard them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.delivery.retry import Retry
from tailrace.hub.hub import Hub
from tailrace.subscription.shard.queues import OnDeadLetter
from tests.support.shards import NAME, REJECTED, Shop, fails
from tests.support.workers import Calls
from tests.unit.cli.shop_commands import ShopCommands


def commands_of(shop: Shop) -> ShopCommands:
    """Push two messages of c7 and one of c8, which all become dead letters, and one of c9."""
    shop.push("c7", 1, 2)
    shop.push("c8", 3)
    shop.push("c9", 4)
    shop.owner().run(lambda value: REJECTED if value in (1, 3) else fails()(value))
    return ShopCommands(shop)


@pytest.fixture
def commands() -> ShopCommands:
    return commands_of(Shop())


@contextmanager
def working(commands: ShopCommands, *failing: int) -> Iterator[Calls]:
    """Run a worker whose handler fails for some values."""
    calls = Calls()
    for value in failing:
        calls.fails(value, times=1000)
    hub = Hub.from_backend(commands.shop.backend)
    with hub.subscription(NAME).start(calls, id="w1"):
        yield calls


def pending(commands: ShopCommands) -> list[str]:
    return [each["origin"] for each in commands.json("dlq", NAME, "list")]


def test_letters_are_listed_with_the_last_error(commands: ShopCommands) -> None:
    lines = commands.lines("dlq", NAME, "list")
    assert lines[0].split() == ["letter", "consumer", "record", "time", "key", "error"]
    assert [line.split()[2] for line in lines[1:]] == [
        "orders/0.0@0",
        "orders/0.0@2",
        "orders/0.0@1",
    ]
    assert lines[1].endswith("c7   Reject: negative")
    assert lines[3].endswith("c7   an earlier message of its key failed")


def test_letters_are_counted_by_error(commands: ShopCommands) -> None:
    groups = commands.json("dlq", NAME, "list", "--by", "error")
    assert [(each["count"], each["error"]) for each in groups] == [
        (2, "Reject: negative"),
        (1, "an earlier message of its key failed"),
    ]


def test_a_letter_is_shown_in_full_by_its_position_in_the_topic(commands: ShopCommands) -> None:
    shown = commands.lines("dlq", NAME, "show", "orders/0.0@0")
    assert shown == [
        "letter     tailrace.dead-letter-queue.crm/0.0@0",
        "consumer   crm",
        "error      Reject: negative",
        "attempts   1",
        "attempt 1  2023-11-14 22:13:20Z Reject: negative",
        "record     orders/0.0@0",
        "time       2023-11-14 22:13:20Z",
        "key        c7",
        "change     insert (copy)",
        "value      1",
    ]
    (behind,) = commands.json("dlq", NAME, "show", "orders/0.0@1")
    assert (behind["attempts"], behind["headers"]) == (0, {})


def test_the_traceback_of_a_handler_follows_its_letter(commands: ShopCommands) -> None:
    with working(commands, 3):
        commands.run("dlq", NAME, "redeliver", "--key", "c8", status=1)
    shown = commands.lines("dlq", NAME, "show", "orders/0.0@2")
    assert [line for line in shown if line.startswith("attempt ")][1].endswith("no stock")
    assert shown[-1] == "RuntimeError: no stock"
    assert shown[shown.index("") + 1] == "Traceback (most recent call last):"
    (letter,) = commands.json("dlq", NAME, "show", "orders/0.0@2")
    assert [each["error"] for each in letter["failures"]] == [
        "Reject: negative",
        "RuntimeError: no stock",
    ]
    assert letter["traceback"].endswith("RuntimeError: no stock\n")


def test_a_key_is_redelivered_in_order_by_its_workers(commands: ShopCommands) -> None:
    with working(commands) as calls:
        done = commands.run("dlq", NAME, "redeliver", "--key", "c7")
    assert done.stdout == "crm: 2 dead letters redelivered\n"
    assert [value for value, _ in calls.calls] == [1, 2]
    assert pending(commands) == ["orders/0.0@2"]
    (entry,) = commands.json("audit")
    assert (entry["command"], entry["target"]) == ("dlq redeliver", NAME)
    assert entry["after"]["done"] == "2 dead letters redelivered"


def test_the_audit_names_the_messages_that_were_discarded(commands: ShopCommands) -> None:
    with working(commands):
        commands.run("dlq", NAME, "discard", "--key", "c7", "--reason", "a test order")
    (entry,) = commands.json("audit")
    assert entry["after"]["discarded"] == [
        {"message": "orders/0.0@0", "key": "c7"},
        {"message": "orders/0.0@1", "key": "c7"},
    ]
    assert "2 dead letters discarded: orders/0.0@0, orders/0.0@1" in commands.run("audit").stdout
    first, second = commands.json("audit", "--discarded")
    assert (first["message"], second["message"]) == ("orders/0.0@0", "orders/0.0@1")
    assert (first["key"], first["consumer"], first["reason"]) == ("c7", NAME, "a test order")
    assert (first["who"], first["time"]) == (entry["who"], entry["time"])
    (last,) = commands.json("audit", "--discarded", "-n", "1")
    assert last == second
    _, _, row = commands.run("audit", "--discarded").stdout.splitlines()
    assert row.split()[-6:] == [NAME, "orders/0.0@1", "c7", "a", "test", "order"]


def test_a_redelivery_that_fails_again_has_status_one(commands: ShopCommands) -> None:
    with working(commands, 3):
        done = commands.run("dlq", NAME, "redeliver", "--all", "--reason", "fixed", status=1)
    assert done.stdout.splitlines() == [
        "crm: 2 dead letters redelivered",
        "  1 key failed again: tailrace dlq crm list --by error",
    ]
    (letter,) = commands.json("dlq", NAME, "list")
    assert (letter["origin"], letter["attempts"]) == ("orders/0.0@2", 2)
    assert letter["error"] == "RuntimeError: no stock"
    (group,) = commands.json("dlq", NAME, "list", "--by", "error")
    assert group["error"] == "RuntimeError: no stock"
    (entry,) = commands.json("audit")
    assert entry["reason"] == "fixed"


def test_a_redelivery_with_attempts_calls_a_letter_that_fails_again(
    commands: ShopCommands,
) -> None:
    with working(commands) as calls:
        calls.fails(1, times=2)  # the first attempt was before the redelivery
        done = commands.run("dlq", NAME, "redeliver", "--key", "c7", "--attempts", "2")
    assert done.stdout == "crm: 2 dead letters redelivered\n"
    assert [value for value, _ in calls.calls] == [1, 1, 2]


def test_without_a_worker_the_request_waits_and_the_command_says_so(
    commands: ShopCommands,
) -> None:
    done = commands.run("dlq", NAME, "redeliver", "--key", "c8", status=3)
    assert done.stdout.startswith(
        "crm: 1 dead letter of 1 key to be redelivered; no worker runs: the request "
    )
    assert done.stdout.endswith(" stays, and workers carry it out when they start\n")
    status = commands.lines("status", status=4)
    assert "no worker runs, 1 request waits" in status[1]
    with working(commands) as calls:
        calls.wait_done(1)
        commands.run("dlq", NAME, "redeliver", "--key", "c7")
    assert [value for value, _ in calls.calls] == [3, 1, 2]
    assert pending(commands) == []


def test_a_request_can_be_made_without_waiting(commands: ShopCommands) -> None:
    report = commands.json("dlq", NAME, "redeliver", "--all", "--no-wait")
    assert (report["state"], report["letters"], report["keys"]) == ("unattended", 3, 2)
    assert len(pending(commands)) == 3


def test_a_request_for_a_paused_subscription_waits_for_the_end_of_the_pause(
    commands: ShopCommands,
) -> None:
    commands.run("subscription", "pause", NAME, "--reason", "bad deploy")
    with working(commands):
        done = commands.run("dlq", NAME, "redeliver", "--key", "c8", status=3)
        assert "the subscription is paused: the request " in done.stdout
        assert done.stdout.endswith(" after: tailrace subscription resume crm\n")


def test_workers_that_take_longer_than_the_wait_leave_work(commands: ShopCommands) -> None:
    delay = threading.Event()
    with working(commands) as calls:
        calls.when(3, lambda delivery: delay.wait(60))
        done = commands.run("dlq", NAME, "redeliver", "--key", "c8", "--wait", "50ms", status=3)
        assert "waiting up to 50ms" in done.stderr
        assert "; not ended yet: the request " in done.stdout
        delay.set()


def test_a_letter_behind_another_of_its_key_is_refused_without_break_order(
    commands: ShopCommands,
) -> None:
    redeliver = ("dlq", NAME, "redeliver", "orders/0.0@1")
    error = commands.run(*redeliver, status=2).stderr
    assert error.startswith(
        "InvalidValue: orders/0.0@1 is behind other dead letters of key 'c7' · "
    )
    assert "tailrace dlq crm redeliver --key c7" in error
    with working(commands) as calls:
        commands.run(*redeliver, "--break-order")
    assert [value for value, _ in calls.calls] == [2]
    assert pending(commands) == ["orders/0.0@0", "orders/0.0@2"]


def test_letters_are_selected_by_error_and_time(commands: ShopCommands) -> None:
    with working(commands) as calls:
        none = commands.run("dlq", NAME, "redeliver", "--error", "timeout")
        assert none.stdout == "crm: no dead letter was selected: nothing is redelivered\n"
        commands.run("dlq", NAME, "redeliver", "--before", "2023-11-14T22:13:20Z")
        assert calls.calls == []
        found = ("--error", "negative", "--after", "2023-11-14T22:13:20Z")
        commands.run("dlq", NAME, "redeliver", *found)
        assert sorted(value for value, _ in calls.calls) == [1, 2, 3]


def test_letters_behind_one_that_is_not_selected_are_left_out(commands: ShopCommands) -> None:
    with working(commands):
        done = commands.run("dlq", NAME, "redeliver", "--error", "an earlier message")
    assert done.stdout.splitlines() == [
        "crm: no dead letter was selected: nothing is redelivered",
        "  1 letter left out, behind another letter of their key that was not selected",
    ]


def test_a_discarded_letter_is_gone_and_the_ones_behind_it_stay(commands: ShopCommands) -> None:
    with working(commands) as calls:
        discard = ("dlq", NAME, "discard", "orders/0.0@0")
        done = commands.run(*discard, "--reason", "a test order")
        assert done.stdout == "crm: 1 dead letter discarded\n"
        assert calls.calls == []
    assert pending(commands) == ["orders/0.0@2", "orders/0.0@1"]
    (entry,) = commands.json("audit")
    assert (entry["command"], entry["reason"]) == ("dlq discard", "a test order")


def test_a_whole_key_is_discarded(commands: ShopCommands) -> None:
    with working(commands):
        done = commands.run("dlq", NAME, "discard", "--key", "c7", "--reason", "a test order")
    assert done.stdout == "crm: 2 dead letters discarded\n"
    assert pending(commands) == ["orders/0.0@2"]


def test_under_continue_letters_are_redelivered_one_by_one() -> None:
    commands = commands_of(Shop(policy=OnDeadLetter.CONTINUE))
    assert pending(commands) == ["orders/0.0@0", "orders/0.0@2"]
    with working(commands) as calls:
        commands.run("dlq", NAME, "redeliver", "orders/0.0@2")
    assert [value for value, _ in calls.calls] == [3]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("redeliver",), "give at least one POSITION, --key"),
        (("redeliver", "--all", "--key", "c7"), "only one of these kinds"),
        (("redeliver", "orders/0.0@0", "--error", "x"), "only one of these kinds"),
        (("discard", "--reason", "x"), "give at least one POSITION, --key"),
        (("discard", "orders/0.0@0"), "--reason"),
        (("discard", "orders/0.0@0", "--reason", " "), "reason"),
        (("redeliver", "orders/0.0@9"), "a pending dead letter of crm"),
        (("redeliver", "--key", "c9"), "a key with dead letters in crm"),
        (("redeliver", "--after", "soon"), "--after is 'soon' · valid: a time in ISO 8601"),
        (("redeliver", "--all", "--wait", "30"), "--wait is '30'"),
    ],
    ids=" ".join,
)
def test_arguments_that_are_not_valid_change_nothing(
    commands: ShopCommands, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in commands.run("dlq", NAME, *arguments, status=2).stderr
    assert commands.json("subscription", "show", NAME)["requests"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("redeliver", "--key", "c7"),
        ("redeliver", "--all", "--attempts", "2"),
        ("redeliver", "--all", "--break-order"),
        ("redeliver", "--all", "--wait", "5s"),
        ("redeliver", "--all", "--no-wait"),
        ("discard", "orders/0.0@0", "--reason", "x", "--no-wait"),
    ],
)
def test_options_for_subscriptions_are_refused_for_groups(
    commands: ShopCommands, arguments: tuple[str, ...]
) -> None:
    commands.run("tail", "orders", "--group", "billing", "-n", "1")
    refused = commands.run("dlq", "billing", *arguments, status=2).stderr
    (option,) = {"--key", "--attempts", "--break-order", "--wait", "--no-wait"} & {*arguments}
    assert f"{option} is for subscriptions" in refused


def test_a_name_of_a_group_with_letters_needs_its_kind(commands: ShopCommands) -> None:
    hub = Hub.from_backend(commands.shop.backend)

    def refuse(delivery: object) -> None:
        raise ValueError("no stock")

    consumer = hub.topic("orders").tail(group=NAME, until="end")
    consumer.run(refuse, retry=Retry(1), on_failed="dead-letter")
    error = commands.run("dlq", NAME, "list", status=2).stderr
    assert "'crm' is a subscription and a group" in error
    assert "valid: subscription:crm or group:crm" in error
    assert len(commands.json("dlq", "subscription:crm", "list")) == 3
    assert len(commands.json("dlq", "group:crm", "list")) == 4


def test_an_unknown_consumer_is_named_with_the_nearest_subscription(
    commands: ShopCommands,
) -> None:
    error = commands.run("dlq", "crn", "list", status=2).stderr
    assert "no consumer 'crn'" in error
    assert "did you mean 'crm'?" in error
    assert (
        "no consumer 'pipeline:crm'" in commands.run("dlq", "pipeline:crm", "list", status=2).stderr
    )
