"""`tailrace queue`, and queues in other commands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine
from tests.support.running_command import RunningCommand
from tests.support.waiting import until


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The queue jobs of two shards, with three messages."""
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        hub.queue("jobs", int, shards=2).push_many([("c7", 1), ("c8", 2), ("c9", 3)])
    return cli


def reject(cli: CommandLine) -> None:
    """Handle the messages, and let those of c8 fail."""

    def work(job: tailrace.Delivery[int]) -> None:
        if job.key == "c8":
            raise tailrace.Reject("no such customer")

    with tailrace.open(cli.hub, sync="none") as hub:
        queue = hub.queue("jobs", strict=True)
        with queue.tail(work):
            until(lambda: queue.stats().total.acked == 2 and queue.stats().total.dead == 1)


def test_a_queue_is_created_in_a_new_hub_with_all_its_options(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path / "new")
    options = "--shards 4 --attempts 3 --first-delay 2s --max-delay 1h --on-dead-letter continue"
    created = cli.json("queue", "create", "emails", *options.split())
    settings = created["settings"]
    assert (created["name"], created["created"]) == ("emails", True)
    assert (settings["shards"], settings["attempts"], settings["first_delay"]) == (4, 3, "2s")
    assert (settings["max_delay"], settings["on_dead_letter"]) == ("1h", "continue")
    assert cli.run("queue", "create", "emails").stdout == "emails: exists, 4 shards\n"
    other = cli.run("queue", "create", "emails", "--attempts", "5", status=1).stderr
    assert "its retry policy is attempts 3" in other
    other = cli.run("queue", "create", "emails", "--shards", "12", status=1).stderr
    assert "its number of shards is 4, not 12" in other


def test_a_topic_is_made_a_queue_by_an_option_alone(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders", "--partitions", "4")
    refused = cli.run("queue", "create", "orders", status=1).stderr
    assert "tailrace queue create orders --from-topic" in refused.replace(f"--hub {cli.hub} ", "")
    created = cli.run("queue", "create", "orders", "--from-topic").stdout
    assert created.startswith("orders: created, 4 shards;")


def test_the_creation_suggests_to_run_a_consumer(cli: CommandLine) -> None:
    assert cli.run("queue", "create", "emails").stdout == (
        "emails: created, 12 shards;"
        " run a consumer: tailrace subscription run emails MODULE:FUNCTION\n"
    )


def test_queues_are_listed(cli: CommandLine) -> None:
    reject(cli)
    heading, row = cli.run("queue", "list").stdout.splitlines()
    assert heading.split()[:2] == ["queue", "state"]
    assert row.split() == ["jobs", "BLOCKED", "0", "2", "0", "0", "0", "1"]
    (found,) = cli.json("queue", "list")
    assert (found["acked"], found["dead"], found["conserved"]) == (2, 1, True)


def test_a_hub_without_queues_suggests_to_create_one(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none"):
        pass
    assert "tailrace queue create NAME" in cli.run("queue", "list").stdout


def test_the_counts_of_a_queue_end_with_whether_they_add_up(cli: CommandLine) -> None:
    reject(cli)
    lines = cli.run("queue", "stats", "jobs").stdout.splitlines()
    counts = {line[:10].strip(): line[10:].strip() for line in lines}
    assert counts["consumers"] == "0 for 2 shards"
    assert (counts["inserted"], counts["acked"], counts["dead"]) == ("3", "2", "1")
    assert counts["emitted"] == "3, 1 failed"
    assert counts["accounts"] == "conserved: 3 inserted = 2 acked + 1 dead"
    assert lines[-1].startswith("accounts")


def test_the_counts_of_each_shard_are_shown_if_asked_for(cli: CommandLine) -> None:
    lines = cli.run("queue", "stats", "jobs", "--shards").stdout.splitlines()
    assert lines[-3].split()[:3] == ["shard", "consumer", "inserted"]
    assert sum(int(line.split()[2]) for line in lines[-2:]) == 3
    report = cli.json("queue", "stats", "jobs")
    assert [each["shard"] for each in report["shards"]] == [0, 1]
    assert (report["total"]["ready"], report["conserved"]) == (3, True)


def test_an_unknown_queue_is_an_error_with_the_one_that_was_meant(cli: CommandLine) -> None:
    error = cli.run("queue", "stats", "job", status=1).stderr
    assert error.startswith("UnknownQueue: no queue 'job'")
    assert "did you mean 'jobs'?" in error
    with tailrace.open(cli.hub) as hub:
        assert hub.queues() == ["jobs"]


@pytest.mark.parametrize("verb", ["stats", "play", "rebalance", "delete"])
def test_a_subscription_is_not_a_queue(cli: CommandLine, verb: str) -> None:
    cli.run("subscription", "create", "mailer", "--topic", "jobs")
    error = cli.run("queue", verb, "mailer", status=2).stderr
    assert "'mailer' is a subscription of 'jobs'" in error


def test_a_pause_and_its_end_are_shown_and_audited(cli: CommandLine) -> None:
    pause = ("queue", "pause", "jobs", "--reason", "bad deploy")
    text = cli.run(*pause, "--drain", "--timeout", "30s").stdout
    assert text == ("jobs: paused, nothing is in flight; to continue: tailrace queue play jobs\n")
    assert "jobs is already paused: bad deploy, by " in cli.run(*pause).stdout
    assert "PAUSED" in cli.run("status", status=4).stdout
    assert cli.json("queue", "play", "jobs")["changed"]
    assert cli.run("queue", "play", "jobs").stdout == "jobs is not paused: nothing to do\n"
    audit = [(each["command"], each["reason"]) for each in cli.json("audit")]
    assert audit == [("queue pause", "bad deploy"), ("queue play", "")]


@pytest.mark.parametrize("stop", [RunningCommand.interrupt, RunningCommand.terminate])
def test_an_interrupted_drain_says_that_the_queue_stays_paused(
    cli: CommandLine, tmp_path: Path, stop: Callable[[RunningCommand], None]
) -> None:
    begun, over = threading.Event(), threading.Event()

    def work(job: tailrace.Delivery[int]) -> None:
        begun.set()
        over.wait(60)

    command = ("queue", "pause", "jobs", "--drain", "--reason", "a test")
    with tailrace.open(cli.hub, sync="none") as hub:
        queue = hub.queue("jobs", strict=True)
        with queue.tail(work):
            assert begun.wait(60)
            with RunningCommand(tmp_path, *command) as running:
                until(lambda: queue.subscription.describe().paused is not None)
                stop(running)
                assert running.status() == 3
            over.set()
        assert queue.subscription.describe().paused is not None
    assert running.output.splitlines() == [
        "jobs stays paused, and calls may still be in flight;"
        " to continue: tailrace queue play jobs",
        "stopped",
    ]


def test_a_timeout_without_a_drain_is_a_usage_error(cli: CommandLine) -> None:
    error = cli.run("queue", "pause", "jobs", "--timeout", "1s", "--reason", "x", status=2).stderr
    assert "--timeout needs --drain" in error


def test_a_rebalance_without_consumers_has_nothing_to_do(cli: CommandLine) -> None:
    assert cli.run("queue", "rebalance", "jobs").stdout == "jobs: no consumer runs\n"


def test_a_rebalance_shows_the_shards_of_each_consumer(cli: CommandLine) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        queue = hub.queue("jobs")
        with queue.tail(lambda job: None, id="a"):
            until(lambda: queue.stats().total.acked == 3)
            text = cli.run("queue", "rebalance", "jobs").stdout
    assert text.startswith("jobs: the shards are divided evenly, none moved\n")
    assert text.splitlines()[-1].endswith("0, 1")


def test_a_deletion_prints_its_plan_and_needs_an_answer(cli: CommandLine) -> None:
    plan = cli.run("queue", "delete", "jobs", "--dry-run").stdout
    assert plan.startswith("jobs: delete the queue with its messages, its dead letters")
    assert "not handled  3 messages" in plan
    assert "--yes" in cli.run("queue", "delete", "jobs", status=2).stderr
    assert cli.run("queue", "delete", "jobs", "--yes").stdout.endswith("done\n")
    assert cli.json("queue", "list") == []


def test_a_queue_is_called_a_queue_in_other_commands(cli: CommandLine) -> None:
    reject(cli)
    shown = cli.run("status", status=4).stdout
    assert "queue jobs  1 key blocked by a dead letter" in shown
    assert "1 topic, 1 queue" in shown
    assert cli.run("subscription", "list").stdout.startswith("no subscriptions")
    assert "\nqueue         jobs, 2 shards\n" in cli.run("topic", "show", "jobs").stdout
    assert cli.run("lag").stdout.splitlines()[0].startswith("queue")
    assert cli.run("subscription", "show", "jobs").stdout.startswith("queue ")
    assert cli.run("explain", "jobs").stdout.startswith("BLOCKED since ")
    assert "no such customer" in cli.run("dlq", "jobs", "list").stdout
    assert "by dead letter jobs/" in cli.run("explain", "jobs", "--key", "c8").stdout
