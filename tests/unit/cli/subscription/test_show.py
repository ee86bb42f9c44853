"""`tailrace subscription list`, `show` and `history`, `lag` and `explain`: their output."""

from __future__ import annotations

import pytest

from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.pause import pause
from tests.support.shards import NAME, REJECTED, RETRY_S, Shop, fails, grant
from tests.unit.cli.shop_commands import ShopCommands


@pytest.fixture
def blocked() -> ShopCommands:
    """A subscription with a worker, in which a dead letter blocks c7, and two wait behind it."""
    shop = Shop()
    shop.push("c7", 1, 2, 3)
    shop.push("c8", 4)
    shop.owner().run(lambda value: REJECTED if value == 1 else fails()(value))
    grant(shop.backend, "w1", 0)
    return ShopCommands(shop)


def test_subscriptions_are_listed_with_what_waits_in_their_queues(blocked: ShopCommands) -> None:
    blocked.shop.push("c8", 5)
    heading, line = blocked.lines("subscription", "list")
    titles = ("subscription", "topic", "state", "workers", "shards", "MQ", "RQ", "DLQ", "blocked")
    assert heading.split() == [*titles, "keys"]
    assert line.split() == ["crm", "orders", "BLOCKED", "1", "1", "1", "0", "3", "1"]
    (summary,) = blocked.json("subscription", "list")
    assert (summary["name"], summary["state"], summary["lag"]) == ("crm", "BLOCKED", 1)
    assert (summary["mq"], summary["rq"], summary["dlq"]) == (1, 0, 3)


def test_a_hub_without_subscriptions_says_how_to_create_one(blocked: ShopCommands) -> None:
    blocked.run("subscription", "delete", NAME, "--yes")
    assert blocked.run("sub", "list").stdout == (
        "no subscriptions; create one: tailrace subscription create NAME --topic TOPIC\n"
    )


def test_a_subscription_is_shown_with_settings_workers_shards_and_blocked_keys(
    blocked: ShopCommands,
) -> None:
    shown = blocked.lines("subscription", "show", NAME)
    assert shown == [
        "subscription    crm",
        "topic           orders",
        "state           BLOCKED since 2023-11-14 22:13:20Z: 1 key blocked by a dead letter,"
        " 2 behind it",
        "retry           3 attempts, first delay 5s, max delay 5s",
        "on dead letter  block",
        "filter          none",
        "concurrency     that of each worker",
        "breaker         run=100,ratio=50%,window=10m",
        "throttle        10%",
        "start           earliest",
        "created         1970-01-01 00:00:00Z",
        *[line for line in shown if line.startswith("oldest message ")],
        "",
        "worker  process          since                 last heartbeat  shards",
        "w1      process 7 of w1  1970-01-01 00:00:00Z  0 s ago         0",
        "",
        *[line for line in shown if line.startswith("shard ")],
        *[line for line in shown if line.split()[:2] == ["0", "w1"]],
        "",
        "blocked key  dead letter   since                 attempts  behind it  last error",
        "c7           orders/0.0@0  2023-11-14 22:13:20Z         1          2  Reject: negative",
        "",
        "to see what helps:",
        "  tailrace explain crm --key c7",
        "  tailrace dlq crm list --by error",
    ]
    detail = blocked.json("subscription", "show", NAME)
    assert detail["shards"][0] | {"epoch": 0} == {
        "shard": 0,
        "owner": "w1",
        "epoch": 0,
        "mq": 0,
        "rq": 0,
        "dlq": 3,
    }
    (key,) = detail["blocked"]
    assert (key["key"], key["letter"], key["behind"]) == ("c7", "orders/0.0@0", 2)
    assert detail["settings"]["attempts"] == 3


def test_without_a_worker_the_command_that_runs_one_is_shown() -> None:
    shown = ShopCommands(Shop()).lines("subscription", "show", NAME)
    assert (
        "no worker runs; start the app of the subscription,"
        " or: tailrace subscription run crm MODULE:FUNCTION"
    ) in shown


def test_workers_beyond_the_shards_are_on_standby(blocked: ShopCommands) -> None:
    grant(blocked.shop.backend, "w2")
    shown = blocked.lines("subscription", "show", NAME)
    assert "1 worker on standby: 1 shard" in shown


def test_the_history_has_pauses_and_their_ends() -> None:
    commands = ShopCommands(Shop())
    commands.run("subscription", "pause", NAME, "--reason", "bad deploy")
    commands.run("subscription", "resume", NAME)
    events = commands.json("subscription", "history", NAME)
    assert [(each["what"], each["why"]) for each in events] == [
        ("pause", "bad deploy"),
        ("resume", "it was paused: bad deploy"),
    ]
    heading = commands.lines("subscription", "history", NAME)[0]
    assert heading.split() == ["time", "event", "shard", "epoch", "worker", "reason"]


def test_lag_has_groups_and_subscriptions(blocked: ShopCommands) -> None:
    blocked.shop.push("c8", 5)
    blocked.run("tail", "orders", "--group", "billing", "-n", "1")
    lines = blocked.lines("lag")
    assert lines[1].split() == ["billing", "orders", "4", "0", "0"]
    assert lines[4].split() == ["crm", "orders", "1", "1", "0", "3", "1"]
    assert [each["name"] for each in blocked.json("lag")] == ["billing", "crm"]
    heading, shard = blocked.lines("lag", NAME)
    assert heading.split() == ["shard", "owner", "epoch", "MQ", "RQ", "DLQ"]
    assert shard.split()[-3:] == ["1", "0", "3"]
    assert blocked.json("lag", "billing")[0]["lag"] == 4


def test_lag_needs_a_kind_if_a_group_has_the_same_name(blocked: ShopCommands) -> None:
    blocked.run("tail", "orders", "--group", NAME, "-n", "1")
    error = blocked.run("lag", NAME, status=2).stderr
    assert error == (
        "InvalidValue: 'crm' is a group and a subscription · valid: group:crm or subscription:crm\n"
    )
    assert blocked.json("lag", "group:crm")[0]["partition"] == "orders/0.0"
    assert blocked.json("lag", "subscription:crm")[0]["shard"] == 0


def test_an_unknown_name_is_that_of_the_nearest_kind(blocked: ShopCommands) -> None:
    error = blocked.run("lag", "crn", status=1).stderr
    assert error.startswith("UnknownSubscription: no subscription 'crn'")
    assert blocked.run("lag", "other", status=1).stderr.startswith("UnknownGroup: ")


def test_groups_do_not_include_workers_and_say_where_they_are(blocked: ShopCommands) -> None:
    assert blocked.json("group", "list") == []
    for name in ("subscription:crm", "crm"):
        for verb in ("show", "history"):
            error = blocked.run("group", verb, name, status=1).stderr
            assert error.startswith(f"UnknownGroup: no group {name!r}")
            assert error.endswith(" shown with it: tailrace subscription show crm\n")


def test_a_blocked_key_is_explained_with_the_commands_that_help(blocked: ShopCommands) -> None:
    shown = blocked.lines("explain", NAME, "--key", "c7")
    owner = next(line for line in shown if "owner" in line)
    assert owner.startswith("  owner      shard 0, worker w1 (process 7 of w1), epoch ")
    assert shown == [
        "BLOCKED since 2023-11-14 22:13:20Z by dead letter orders/0.0@0"
        " (policy on_dead_letter=block)",
        "  behind it  2 messages of 'c7', in DLQ",
        "  last       attempt 1 of 3: Reject: negative",
        owner,
        "  retry      tailrace dlq crm redeliver --key c7                  3 messages, in order",
        "  skip       tailrace dlq crm discard orders/0.0@0 --reason TEXT"
        "  then redeliver the 2 behind it",
    ]


def test_a_subscription_is_explained_by_its_name(blocked: ShopCommands) -> None:
    found = blocked.json("explain", NAME)
    assert found["headline"] == (
        "BLOCKED since 2023-11-14 22:13:20Z: 1 key blocked by a dead letter, 2 behind it"
    )
    assert [each["command"] for each in found["remedies"]] == [
        "tailrace explain crm --key c7",
        "tailrace dlq crm list --by error",
    ]
    assert blocked.json("explain", NAME, "--subscription") == found


def test_a_name_of_a_topic_or_group_needs_a_flag_for_the_subscription() -> None:
    commands = ShopCommands(Shop())
    commands.run("topic", "create", NAME)
    found = commands.json("explain", NAME)
    assert found["headline"] == "EMPTY, nothing consumes it"
    (other,) = found["remedies"]
    assert other["command"] == "tailrace explain crm --subscription"
    explained = commands.json(*other["command"].split()[1:])
    assert explained["headline"].startswith("IDLE: ")


def test_flags_of_another_kind_are_refused(blocked: ShopCommands) -> None:
    error = blocked.run("explain", NAME, "--group", "--key", "c7", status=2).stderr
    assert "--group and --subscription or --key cannot be combined" in error


def test_a_shard_is_explained(blocked: ShopCommands) -> None:
    found = blocked.json("explain", "crm/0.0")
    assert found["headline"] == "CAUGHT UP: shard 0 of crm"
    assert found["facts"][0]["what"] == "0 in MQ, 0 in RQ, 3 in DLQ"
    error = blocked.run("explain", "crm/0.1", status=2).stderr
    assert error == "InvalidValue: shard is 'crm/0.1' · valid: crm/0.0 to crm/0.0\n"


def test_a_key_that_needs_quotes_is_quoted_in_commands() -> None:
    shop = Shop()
    shop.push("it's", 1)
    shop.owner().run(lambda value: REJECTED)
    found = ShopCommands(shop).json("explain", NAME, "--key", "it's")
    assert found["remedies"][0]["command"] == "tailrace dlq crm redeliver --key 'it'\"'\"'s'"


def test_a_paused_subscription_is_shown_with_the_reason() -> None:
    shop = Shop(policy=OnDeadLetter.CONTINUE, attempts=None)
    pause(shop.backend, NAME, "bad deploy", "ops@host", 0)
    commands = ShopCommands(shop)
    shown = commands.lines("subscription", "show", NAME)
    assert (
        "state           PAUSED since 1970-01-01 00:00:00Z: bad deploy (ops@host), lag 0" in shown
    )
    assert "retry           no last attempt, first delay 5s, max delay 5s" in shown
    assert commands.json("subscription", "show", NAME)["paused"] == {
        "reason": "bad deploy",
        "by": "ops@host",
        "since": "1970-01-01T00:00:00Z",
    }


def test_a_deletion_prints_what_is_not_delivered_and_is_audited(blocked: ShopCommands) -> None:
    blocked.shop.push("c8", 5)
    plan = blocked.lines("subscription", "delete", NAME, "--dry-run")
    assert plan == [
        "crm: delete the subscription of orders, its queues and its progress",
        "  stops          1 running worker, with an error",
        "  created        an app that declares it creates it again, and delivers from its start on",
        "  not delivered  1 message",
        "  not delivered  3 dead letters",
        "  kept           topic orders with its messages",
        "  undo           none; a new subscription of that name starts without progress",
    ]
    assert blocked.json("subscription", "list") != []
    blocked.run("subscription", "delete", NAME, status=2)
    blocked.run("subscription", "delete", NAME, "--yes", "--reason", "replaced")
    assert blocked.json("subscription", "list") == []
    (entry,) = blocked.json("audit")
    assert (entry["command"], entry["target"], entry["reason"]) == (
        "subscription delete",
        "crm",
        "replaced",
    )
    assert entry["before"] == {"topic": "orders", "mq": 1, "rq": 0, "dlq": 3}
    assert "UnknownSubscription" in blocked.run("sub", "delete", NAME, "--yes", status=1).stderr


def test_retries_are_in_the_lag(blocked: ShopCommands) -> None:
    shop = Shop(attempts=None)
    shop.push("c7", 1, 2)
    shop.owner().run(fails(1))
    shop.now = RETRY_S / 2
    (summary,) = ShopCommands(shop).json("subscription", "list")
    assert (summary["lag"], summary["rq"], summary["retrying_keys"]) == (2, 2, 1)
