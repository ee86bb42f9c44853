"""Operators redeliver and discard dead letters, whatever happens to the workers meanwhile."""

from __future__ import annotations

import pytest

from tailrace import Retry
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.store.requests.selection import LetterSelection
from tailrace.testing.subscriptions.world import SubscriptionWorld
from tests.simulation.request_mutations import MUTATIONS
from tests.simulation.requested import run
from tests.simulation.seeded_trials import Found, Trials, batch_of
from tests.simulation.subscribed import NAME, Fate, FlakyService
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

SEEDS = count("request_seeds", test=16, soak=600)
BATCHES = 4

FOUND = {
    "without_the_audit_in_the_transaction": Found((12, 24, 27), "was not audited|twice"),
    "without_the_stored_end": Found(
        (12, 18, 35), "audited twice|which has ended|and it failed before"
    ),
    "without_the_outcome_of_a_target": Found((12, 35, 39), "and it failed before"),
    "without_the_wait_for_a_redelivery": Found((1, 6, 8), "two messages"),
}

SEARCHED = count("request_mutation_seeds", test=1, soak=60)
TRIALS = Trials(run)


@pytest.mark.part("subscriptions")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_requests_have_effect_once_and_are_audited_once_under_faults(
    batch: int, record_evidence: RecordEvidence
) -> None:
    what = f"virtual minutes of requests on dead letters, batch {batch + 1} of {BATCHES}"
    seeds = batch_of(SEEDS, batch, BATCHES)
    TRIALS.assert_kept(what, seeds, "subscriptions", record_evidence)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_of_requests_is_found_by_one_of_its_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TRIALS.assert_found_by_one(FOUND[name], lambda: MUTATIONS[name](monkeypatch))


@pytest.mark.soak
@pytest.mark.part("subscriptions")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_of_requests_is_found_by_some_of_many_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch, record_evidence: RecordEvidence
) -> None:
    MUTATIONS[name](monkeypatch)
    TRIALS.assert_found_by_some(name, range(SEARCHED), "subscriptions", record_evidence)


def a_parked_key(policy: OnDeadLetter) -> tuple[SubscriptionWorld, FlakyService]:
    """Return a world in which message 0 of key a is a dead letter, and 1 to 4 came after it."""
    world = SubscriptionWorld(1)
    world.topic("orders", partitions=2)
    world.subscription(NAME, "orders", retry=Retry(1), policy=policy)
    service = FlakyService(world, {0: Fate.FAILS})
    world.worker("a").work(NAME, service)
    for number in range(5):
        world.push("orders", number, key="a")
    world.run(5.0)
    assert len(world.letters(NAME)) == (5 if policy is OnDeadLetter.BLOCK else 1)
    return world, service


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_a_redelivery_ends_while_new_messages_of_the_key_keep_coming(policy: OnDeadLetter) -> None:
    world, service = a_parked_key(policy)
    service.fates.clear()
    world.produce("orders", [("a", number) for number in range(5, 205)], every_s=0.05)
    assert world.ask(NAME, RequestAction.REDELIVER, LetterSelection(keys=(b"a",)))
    world.run(5.0)
    assert world.letters(NAME) == []
    world.run_until_consumed()
    assert sorted(service.positions.values()) == list(range(205))


def test_a_request_waits_for_a_worker_and_survives_its_end() -> None:
    world, service = a_parked_key(OnDeadLetter.BLOCK)
    world.worker("a").crash()
    service.fates.clear()
    world.ask(NAME, RequestAction.REDELIVER)
    world.run(5.0)
    assert len(world.letters(NAME)) == 5
    for _ in range(20):
        world.worker("a").start()
        world.run(0.7)
        world.worker("a").crash()
        world.run(0.3)
    world.worker("a").start()
    world.run_until_consumed()
    assert world.letters(NAME) == []
