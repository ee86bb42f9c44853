"""Operations on queues: their counts, their health and their explanation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.backend.contract import Transaction
from tailrace.hub.hub import Hub
from tailrace.operations.explain import explain
from tailrace.operations.lag import list_lags
from tailrace.operations.problem import Problem
from tailrace.operations.queue.accounting import QueueAccounts
from tailrace.operations.queue.changes import delete, pause, plan_delete, play, rebalance
from tailrace.operations.queue.create import create_queue
from tailrace.operations.queue.describe import list_queues, show_stats
from tailrace.operations.status import status
from tailrace.operations.subscription.describe import list_subscriptions
from tailrace.operations.topic.describe import show_topic
from tailrace.queue.stats import MessageCounts, QueueStats
from tailrace.subscription.shard.commit.counts import ShardCounts, counts_key, encode_counts
from tailrace.testing import MemoryBackend
from tests.support.waiting import until


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub in memory with the queue jobs of two shards, which has three messages."""
    with Hub.from_backend(MemoryBackend(gap_every=3)) as hub:
        hub.queue("jobs", int, shards=2).push_many([("c7", 1), ("c8", 2), ("c9", 3)])
        yield hub


def handle_all(hub: Hub) -> None:
    queue = hub.queue("jobs")
    with queue.tail(lambda job: None):
        until(lambda: queue.stats().total.acked == 3)


def miscount(hub: Hub) -> None:
    """Count more messages as handled than there are."""
    counts = encode_counts(ShardCounts(acked=100))
    hub.backend.commit(Transaction(table={counts_key("jobs", "0.0"): counts}))


def test_a_queue_is_counted_with_its_shards(hub: Hub) -> None:
    report = show_stats(hub, "jobs")
    assert (report.total.inserted, report.total.ready, report.conserved) == (3, 3, True)
    assert sum(each.counts.ready for each in report.shards) == 3
    assert report.accounting == "conserved: 3 inserted = 3 ready"
    handle_all(hub)
    assert show_stats(hub, "jobs").accounting == "conserved: 3 inserted = 3 acked"


def test_counts_that_do_not_add_up_are_told() -> None:
    counts = MessageCounts(inserted=5, acked=2, dead=1)
    found = QueueAccounts.of(QueueStats(counts, (), quiet=True, consumers=0, standby=0))
    assert found.text == "NOT CONSERVED: 5 inserted, but 2 acked + 1 dead; 2 missing"
    busy = QueueAccounts.of(QueueStats(counts, (), quiet=False, consumers=0, standby=0))
    assert busy.conserved is None
    assert busy.text.startswith("not known while messages move")


def test_a_quiet_queue_that_does_not_add_up_is_not_well(hub: Hub) -> None:
    handle_all(hub)
    assert status(hub).well
    miscount(hub)
    (problem,) = status(hub).problems
    assert problem.subject == "queue jobs"
    assert problem.what.startswith("NOT CONSERVED: ")
    assert problem.remedy == "tailrace queue stats jobs --shards"
    assert "NOT CONSERVED" in next(
        fact.what for fact in explain(hub, "jobs").facts if fact.name == "counts"
    )


def test_status_calls_a_queue_a_queue(hub: Hub) -> None:
    found = status(hub)
    assert (found.queues, found.subscriptions) == (1, 0)
    assert found.problems == (
        Problem(
            "queue jobs",
            "UNATTENDED: lag 3, no consumer runs",
            "start its consumers; tailrace explain jobs",
        ),
    )
    pause(hub, "jobs", "a test")
    assert status(hub).problems[0].remedy == "tailrace queue play jobs"


def test_consumers_that_stand_by_are_noted_with_the_shards_that_would_use_them(hub: Hub) -> None:
    queue = hub.queue("jobs")
    with queue.tail(lambda job: None), queue.tail(lambda job: None), queue.tail(lambda job: None):
        until(lambda: queue.stats().total.acked == 3 and queue.stats().standby == 1)
        (note,) = status(hub).notes
        assert note.subject == "queue jobs"
        assert note.what == "1 of 3 consumers on standby: 2 shards"
        assert note.remedy.startswith("4 shards would use them")
        assert show_stats(hub, "jobs").standby == 1


def test_a_queue_is_explained_as_a_queue(hub: Hub) -> None:
    found = explain(hub, "jobs")
    assert found.headline == "UNATTENDED: no consumer runs, lag 3"
    facts = {fact.name: fact.what for fact in found.facts}
    assert facts["queue"] == "2 shards, on_dead_letter=block"
    assert facts["counts"] == "conserved: 3 inserted = 3 ready"
    assert "tailrace topic show jobs" in [each.command for each in found.remedies]


def test_a_queue_is_not_listed_as_a_subscription(hub: Hub) -> None:
    hub.create_subscription("crm", topic="jobs")
    assert [each.name for each in list_subscriptions(hub)] == ["crm"]
    assert [each.name for each in list_queues(hub)] == ["jobs"]
    shown = {each.name: each.queue for each in show_topic(hub, "jobs").subscriptions}
    assert shown == {"crm": False, "jobs": True}
    assert {each.name for each in list_lags(hub)} == {"crm", "jobs"}


def test_a_pause_is_reported_with_its_reason_and_its_drain(hub: Hub) -> None:
    first = pause(hub, "jobs", "the disk is full", drain=True)
    assert (first.changed, first.quiet, first.reason) == (True, True, "the disk is full")
    assert not pause(hub, "jobs", "again").changed
    ended = play(hub, "jobs")
    assert (ended.changed, ended.reason) == (True, "the disk is full")
    assert not play(hub, "jobs").changed


def test_a_rebalance_reports_the_shards_of_each_consumer(hub: Hub) -> None:
    with hub.queue("jobs").tail(lambda job: None, id="a"):
        report = rebalance(hub, "jobs", timeout="30s")
        assert (report.balanced, list(report.consumers.values())) == (True, [(0, 1)])


def test_a_deletion_is_planned_with_what_is_lost(hub: Hub) -> None:
    plan = plan_delete(hub, "jobs")
    assert "not handled  3 messages" in str(plan)
    assert delete(hub, "jobs", "a test").summary == plan.summary
    assert "jobs" not in hub.topics()


def test_a_queue_that_exists_is_left_as_it_is(hub: Hub) -> None:
    assert create_queue(hub, "emails", shards=4, attempts="3").created
    found = create_queue(hub, "emails")
    assert (found.created, found.settings.shards, found.settings.attempts) == (False, 4, 3)
