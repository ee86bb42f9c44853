"""The health of subscriptions: what `tailrace status` shows of them."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Change
from tailrace.hub.hub import Hub
from tailrace.operations.problem import Problem
from tailrace.operations.status import HubStatus, status
from tailrace.operations.subscription.checks import RETRY_MAX
from tailrace.operations.subscription.explain_key import explain_key
from tailrace.operations.subscription.explain_subscription import explain_subscription
from tailrace.settings import HubSettings
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.describe import describe
from tailrace.subscription.store.generations.asking import ask_for_shards
from tailrace.subscription.store.names import REQUESTS
from tailrace.subscription.store.pause import pause
from tailrace.testing import ManualClock
from tests.support.shards import NAME, REJECTED, Shop, fails, grant
from tests.support.waiting import until

START_MS = 1_700_000_000_000
SUBJECT = f"subscription {NAME}"


def check(shop: Shop, after_s: float = 0.0) -> HubStatus:
    """Return the status some time after the time of the shop's start."""
    return status(Hub.from_backend(shop.backend), ManualClock(START_MS + round(after_s * 1000)))


def test_a_subscription_that_has_delivered_everything_is_well() -> None:
    shop = Shop()
    shop.push("c7", 1)
    shop.owner().run()
    found = check(shop)
    assert (found.well, found.notes, found.subscriptions) == (True, (), 1)


def test_one_blocked_key_is_named_with_what_is_behind_it_and_for_how_long() -> None:
    shop = Shop()
    shop.push("c7", 1, 2, 3)
    shop.owner().run(lambda value: REJECTED)
    (problem,) = check(shop, 41 * 60 + 59).problems
    assert problem == Problem(
        SUBJECT,
        "1 key blocked by a dead letter, 2 behind it, oldest 41 min",
        "tailrace explain crm --key c7",
    )


def test_several_blocked_keys_are_counted() -> None:
    shop = Shop()
    shop.push("c7", 1, 2)
    shop.push("c8", 3)
    shop.owner().run(lambda value: REJECTED)
    (problem,) = check(shop, 3 * 3600).problems
    assert problem == Problem(
        SUBJECT,
        "2 keys blocked by dead letters, 1 behind them, oldest 3 h",
        "tailrace explain crm",
    )


@pytest.mark.parametrize("key", ["c7", None])
def test_dead_letters_that_block_no_key_are_counted(key: str | None) -> None:
    shop = Shop(policy=OnDeadLetter.BLOCK if key is None else OnDeadLetter.CONTINUE)
    shop.push(key, 1, 2)
    shop.owner().run(lambda value: REJECTED)
    (problem,) = check(shop).problems
    assert problem == Problem(SUBJECT, "2 pending dead letters", "tailrace dlq crm list --by error")


def test_a_subscription_that_lags_without_a_worker_is_unattended() -> None:
    shop = Shop()
    shop.push("c7", 1)
    (problem,) = check(shop).problems
    assert problem == Problem(
        SUBJECT,
        "UNATTENDED: lag 1, no worker runs",
        "start its workers; tailrace explain crm",
    )
    grant(shop.backend, "w1", 0)
    assert check(shop).well


def test_messages_of_a_scaled_topic_count_before_a_worker_has_seen_the_scaling() -> None:
    shop = Shop(partitions=1)
    shop.topic.scale(2)
    shop.push("c7", 1)
    (problem,) = check(shop).problems
    assert problem.what == "UNATTENDED: lag 1, no worker runs"


def test_requests_without_a_worker_are_a_problem() -> None:
    shop = Shop()
    shop.backend.store.commit(Change(writes={f"{REQUESTS}{NAME}/1": b"{}"}))
    (problem,) = check(shop).problems
    assert problem.what == "UNATTENDED: lag 0, no worker runs, 1 request waits"


def test_a_pause_is_a_problem_with_its_reason() -> None:
    shop = Shop()
    pause(shop.backend, NAME, "bad deploy", "ops@host", START_MS)
    (problem,) = check(shop, 90).problems
    assert problem == Problem(
        SUBJECT,
        "PAUSED for 1 min by ops@host: bad deploy, lag 0",
        "tailrace subscription resume crm",
    )


def test_a_retry_is_a_note_and_after_a_while_a_problem() -> None:
    shop = Shop(attempts=None)
    shop.push("c7", 1, 2)
    shop.owner().run(fails(1))
    grant(shop.backend, "w1", 0)
    found = check(shop, 30)
    assert found.well
    (note,) = found.notes
    assert note == Problem(SUBJECT, "retrying 1 key for 30 s, 2 in RQ", "tailrace explain crm")
    found = check(shop, RETRY_MAX.total_seconds() + 1)
    assert [each.what for each in found.problems] == ["retrying 1 key for 1 min, 2 in RQ"]
    assert found.notes == ()


def test_a_worker_that_sends_no_heartbeat_for_a_lease_is_a_problem() -> None:
    shop = Shop(partitions=2, shards=2)
    shop.push("c7", 1)
    grant(shop.backend, "w1", 0, 1)
    hub = Hub.from_backend(shop.backend, settings=HubSettings.of(lease="1s"))
    until(lambda: describe(shop.backend, NAME).workers[0].silent_s > 1.0)
    (problem,) = status(hub, ManualClock(START_MS)).problems
    assert problem.what.startswith("w1 owns 2 shards, no heartbeat for ")
    assert problem.remedy == "tailrace subscription show crm"
    found = explain_subscription(hub, NAME)
    assert found.headline.startswith("SILENT: w1 owns 2 shards, no heartbeat for ")
    worker = next(each.what for each in found.facts if each.name == "worker")
    assert worker.endswith("; process 7 of w1 is stopped or cut off")
    owner = next(each.what for each in explain_key(hub, NAME, "c7").facts if each.name == "owner")
    assert owner.endswith(": the process is stopped or cut off")


def test_a_storage_topic_of_the_next_generation_is_a_note() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.push("c7", 0)
    shop.topic.scale(6)
    shop.push("c7", 1, 2)
    grant(shop.backend, "w1", 0, 1, 2, 3)
    found = check(shop)
    assert not found.problems
    (note,) = found.notes
    assert note == Problem(
        SUBJECT,
        "orders/1 is read by the next generation, with 4 shards:"
        " waits until orders/0 (1 message left) is finished",
        "tailrace explain crm",
    )


def test_a_change_of_the_number_of_shards_is_a_note() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.push("c7", 0)
    shop.topic.scale(12)
    grant(shop.backend, "w1", 0, 1, 2, 3)
    ask_for_shards(shop.backend, NAME, 12, uneven=False, by="ann@host", now_ms=1)
    (note,) = check(shop).notes
    assert note.what == (
        "4 -> 12 shards, asked for by ann@host: waits until orders/0 (1 message left) is finished"
    )


def test_workers_on_standby_are_a_note() -> None:
    shop = Shop()
    grant(shop.backend, "w1", 0)
    grant(shop.backend, "w2")
    found = check(shop)
    assert found.well
    assert [each.what for each in found.notes] == ["1 of 2 workers on standby: 1 shard"]


def test_a_subscription_of_a_deleted_topic_is_a_note() -> None:
    shop = Shop()
    Hub.from_backend(shop.backend).delete_topic("orders")
    found = check(shop)
    assert found.well
    (note,) = found.notes
    assert note == Problem(
        SUBJECT, "its topic orders was deleted", "tailrace subscription delete crm"
    )
