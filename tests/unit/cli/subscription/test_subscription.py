"""`tailrace subscription create`, `update`, `pause` and `resume`."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A topic of four partitions, and its subscription mailer."""
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        hub.create_topic("orders", int, partitions=4)
    cli.run("subscription", "create", "mailer", "--topic", "orders")
    return cli


def test_a_subscription_is_created_with_all_its_options(cli: CommandLine) -> None:
    options = (
        "--topic orders --attempts none --first-delay 2s --max-delay 1h --on-dead-letter continue"
        " --from latest --shards 2 --rq-partitions 8 --dlq-partitions 4 --concurrency-total 20"
        " --breaker run=50 --throttle 25%"
    )
    created = cli.json("sub", "create", "crm", *options.split(), "--filter", "key == 'c7'")
    assert created == {
        "name": "crm",
        "settings": {
            "topic": "orders",
            "shards": 2,
            "attempts": None,
            "first_delay": "2s",
            "max_delay": "1h",
            "on_dead_letter": "continue",
            "filter": "key == 'c7'",
            "rq_partitions": 8,
            "dlq_partitions": 4,
            "start": "latest",
            "endpoint": None,
            "concurrency_total": "20",
            "breaker": "run=50,ratio=50%,window=10m",
            "throttle": "25%",
        },
    }
    with tailrace.open(cli.hub) as hub:
        assert hub.subscription("crm").definition.shards == 2


def test_its_creation_suggests_to_run_a_worker(cli: CommandLine) -> None:
    text = cli.run("subscription", "create", "crm", "--topic", "orders").stdout
    assert text == (
        "crm: delivers orders, 4 shards;"
        " run a worker: tailrace subscription run crm MODULE:FUNCTION\n"
    )


def test_a_subscription_that_exists_is_an_error_unless_it_is_the_same(cli: CommandLine) -> None:
    create = ("subscription", "create", "mailer", "--topic", "orders")
    assert cli.run(*create, status=1).stderr.startswith("SubscriptionExists: ")
    cli.run(*create, "--exist-ok")
    other = cli.run(*create, "--exist-ok", "--attempts", "3", status=1).stderr
    assert "its retry policy is attempts 8, first 1s, max 10m, not attempts 3" in other


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--attempts many", "--attempts is 'many' · valid: a whole number, 1 or more, or none"),
        ("--attempts 0", "--attempts is 0 · valid: a whole number, 1 or more, or none"),
        ("--first-delay 5", "--first-delay is '5' · valid: a timedelta or text such as 500ms"),
        ("--first-delay 1h", "--max-delay is '10m' · valid: first, 1h, or longer"),
        ("--shards 3", "shards is 3 · valid: numbers that divide the partitions"),
        ("--from -5", "start is '-5' · valid: earliest, latest"),
    ],
)
def test_an_option_that_is_not_valid_is_named(cli: CommandLine, options: str, problem: str) -> None:
    create = ("subscription", "create", "crm", "--topic", "orders")
    error = cli.run(*create, *options.split(), status=2).stderr
    assert error.startswith(f"InvalidValue: {problem}")
    with tailrace.open(cli.hub) as hub:
        assert hub.subscriptions() == ["mailer"]


def test_a_subscription_of_an_unknown_topic_is_refused(cli: CommandLine) -> None:
    error = cli.run("subscription", "create", "crm", "--topic", "order", status=1).stderr
    assert error.startswith("UnknownTopic: no topic 'order'")


def test_an_update_changes_what_is_given_and_is_audited(cli: CommandLine) -> None:
    update = ("subscription", "update", "mailer")
    text = cli.run(*update, "--attempts", "20", "--filter", "key == 'c7'").stdout
    assert text == "mailer: attempts 8 -> 20\nmailer: filter none -> key == 'c7'\n"
    assert cli.run(*update, "--attempts", "20").stdout == "mailer: no setting has changed\n"
    report = cli.json(*update, "--filter", "", "--reason", "all countries")
    assert (report["before"]["filter"], report["after"]["filter"]) == ("key == 'c7'", None)
    assert report["after"]["attempts"] == 20
    first, second = cli.json("audit", "--target", "mailer")
    assert first["command"] == "subscription update"
    assert first["before"] == {"attempts": 8, "filter": None}
    assert first["after"]["done"] == "set attempts 20, filter key == 'c7'"
    assert second["after"] == {"filter": None, "done": "set filter none"}
    assert second["reason"] == "all countries"


def test_an_update_without_a_setting_is_a_usage_error(cli: CommandLine) -> None:
    error = cli.run("subscription", "update", "mailer", "--reason", "why", status=2).stderr
    assert "give --attempts, --first-delay, --max-delay, --filter" in error


def test_a_pause_and_its_end_are_shown_and_audited(cli: CommandLine) -> None:
    pause = ("subscription", "pause", "mailer", "--reason", "bad deploy")
    text = cli.run(*pause).stdout
    assert text == "mailer: paused; to continue: tailrace subscription resume mailer\n"
    assert "mailer is already paused: bad deploy, by " in cli.run(*pause).stdout
    report = cli.json("subscription", "resume", "mailer")
    assert (report["changed"], report["reason"]) == (True, "bad deploy")
    assert "mailer is not paused: nothing to do" in cli.run("sub", "resume", "mailer").stdout
    audit = cli.json("audit")
    assert [(each["command"], each["target"], each["reason"]) for each in audit] == [
        ("subscription pause", "mailer", "bad deploy"),
        ("subscription resume", "mailer", ""),
    ]


def test_a_pause_needs_a_reason(cli: CommandLine) -> None:
    assert "--reason" in cli.run("subscription", "pause", "mailer", status=2).stderr
    cli.run("subscription", "pause", "mailer", "--reason", " ", status=2)
    assert cli.json("audit") == []


@pytest.mark.parametrize(
    "command",
    [
        ("update", "mailr", "--attempts", "3"),
        ("pause", "mailr", "--reason", "why"),
        ("resume", "mailr"),
        ("run", "mailr", "json:loads"),
    ],
    ids=lambda command: command[0],
)
def test_an_unknown_subscription_is_named_with_the_nearest_one(
    cli: CommandLine, command: tuple[str, ...]
) -> None:
    error = cli.run("subscription", *command, status=1).stderr
    assert error.startswith("UnknownSubscription: no subscription 'mailr'")
    assert "did you mean 'mailer'?" in error


def test_the_total_of_calls_is_updated_shown_and_checked(cli: CommandLine) -> None:
    update = ("subscription", "update", "mailer", "--concurrency-total")
    assert cli.run(*update, "10").stdout == "mailer: concurrency total off -> 10\n"
    shown = cli.run("subscription", "show", "mailer").stdout
    assert "10 calls at a time in all workers" in shown
    refused = cli.run(*update, "3", status=2).stderr
    assert "concurrency_total is 3 · valid: 4 or more, one call for each of its shards" in refused
    wrong = cli.run(*update, "many", status=2).stderr
    assert "--concurrency-total is 'many' · valid: a whole number" in wrong
    assert cli.run(*update, "off").stdout == "mailer: concurrency total 10 -> off\n"


def test_the_throttle_is_updated_and_checked(cli: CommandLine) -> None:
    update = ("subscription", "update", "mailer", "--throttle")
    assert cli.run(*update, "2.5%").stdout == "mailer: throttle 10% -> 2.5%\n"
    assert cli.run(*update, "off").stdout == "mailer: throttle 2.5% -> off\n"
    assert cli.run(*update, "on").stdout == "mailer: throttle off -> 10%\n"
    wrong = cli.run(*update, "half", status=2).stderr
    assert "--throttle is 'half' · valid: more than 0% and at most 100%" in wrong
    assert "'on' or 'off'" in wrong


def test_the_breaker_is_updated_and_checked(cli: CommandLine) -> None:
    update = ("subscription", "update", "mailer", "--breaker")
    changed = cli.run(*update, "run=30,window=5m").stdout
    before, after = "run=100,ratio=50%,window=10m", "run=30,ratio=50%,window=5m"
    assert changed == f"mailer: breaker {before} -> {after}\n"
    assert cli.run(*update, "off").stdout == f"mailer: breaker {after} -> off\n"
    assert cli.run(*update, "on").stdout == f"mailer: breaker off -> {before}\n"
    wrong = cli.run(*update, "fast", status=2).stderr
    assert "--breaker is 'fast' · valid: a tailrace.Breaker" in wrong


def test_a_reset_shows_its_plan_and_is_audited(cli: CommandLine) -> None:
    cli.run("push", "orders", "1", "2", "3", "--key", "c7")
    reset = ("subscription", "reset", "mailer")
    assert (
        "mailer: orders is at start already: nothing to do"
        in cli.run(*reset, "--to", "start").stdout
    )
    plan = cli.run(*reset, "--to", "end", "--dry-run").stdout
    assert "mailer: reset orders to end" in plan
    assert "not delivered  3 messages; their keys continue" in plan
    cli.run(*reset, "--to", "end", "--reason", "a bad import", "--yes")
    plan = cli.run(*reset, "--to", "start", "--dry-run").stdout
    assert "3 messages once more, with ids that end in +r2" in plan
    assert (
        "RQ are moved forward only"
        in cli.run(*reset, "--to", "start", "--queue", "rq", "--yes", status=2).stderr
    )
    [line] = cli.json("audit")
    assert (line["command"], line["reason"]) == ("subscription reset", "a bad import")
