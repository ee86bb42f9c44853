"""The number of shards changes, and the topic is scaled to any number of partitions, while messages
flow and fail and processes die: no message is lost, and every key stays in order.
"""

from __future__ import annotations

from functools import partial

import pytest

from tailrace import Retry
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.testing.subscriptions.world import SubscriptionWorld
from tests.simulation.generation_mutations import MUTATIONS
from tests.simulation.resharded import run
from tests.simulation.seeded_trials import Found, Trials, batch_of
from tests.simulation.subscribed import NAME, Fate, FlakyService
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

SEEDS = count("generation_seeds", test=24, soak=2000)
BATCHES = 8

FOUND = {
    "without_the_fences": Found((4, 8, 13), "whose generation has ended|falls from"),
    "without_the_intersection": Found((13, 41, 46), "handled message|are counted|has lost"),
    "without_what_feeders_have_done": Found((13, 21, 24), "twice|are counted|handled message"),
    "without_feeders": Found((6, 13, 15), "in DLQ|handled message|has not consumed"),
    "without_the_order_of_storage_topics": Found((7, 13, 18), "handled message"),
    "without_the_wait_for_older_storage_topics": Found((6, 13, 15), "handled message|at once"),
    "without_the_check_that_nothing_is_left": Found((1, 2, 6), "handled message|has lost"),
    "without_dividing_requests": Found((18, 39, 51), "has not carried out|it failed before"),
}

SEARCHED = count("generation_mutation_seeds", test=1, soak=60)
TRIALS = Trials(run)


@pytest.mark.part("subscriptions")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_changes_of_shards_and_partitions_lose_and_reorder_nothing_under_faults(
    batch: int, record_evidence: RecordEvidence
) -> None:
    what = f"virtual minutes of re-sharding and scaling, batch {batch + 1} of {BATCHES}"
    seeds = batch_of(SEEDS, batch, BATCHES)
    TRIALS.assert_kept(what, seeds, "subscriptions", record_evidence)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_of_generations_is_found_by_one_of_its_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TRIALS.assert_found_by_one(FOUND[name], lambda: MUTATIONS[name](monkeypatch))


@pytest.mark.soak
@pytest.mark.part("subscriptions")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_of_generations_is_found_by_some_of_many_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch, record_evidence: RecordEvidence
) -> None:
    MUTATIONS[name](monkeypatch)
    TRIALS.assert_found_by_some(name, range(SEARCHED), "subscriptions", record_evidence)


def test_a_worker_that_was_stopped_over_two_generations_writes_nothing() -> None:
    world = SubscriptionWorld(1)
    world.topic("orders", partitions=12)
    retry = Retry(3, first="1s", max="1s")
    world.subscription(NAME, "orders", retry=retry, shards=4)
    service = FlakyService(world, dict.fromkeys(range(0, 300, 7), Fate.FAILS_ONCE))
    for name in "ab":
        world.worker(name).work(NAME, service)
    world.produce("orders", [(f"k{number % 20}", number) for number in range(300)], every_s=0.1)
    world.run(5.0)
    world.worker("a").pause(25.0)
    world.at(world.now + 6.0, lambda: world.reshard(NAME, 6))
    world.at(world.now + 14.0, lambda: world.reshard(NAME, 3))
    world.run(22.0)
    assert world.stored(NAME).definition.generation == 2
    world.run(10.0)
    world.run_until_consumed()


def test_parked_keys_forbid_no_change_and_are_redelivered_in_order_after_it() -> None:
    """4 -> 3 -> 6 -> 12 -> 1 shards over 12 partitions, then 8 partitions."""
    world = SubscriptionWorld(2)
    world.topic("orders", partitions=12)
    world.subscription(NAME, "orders", retry=Retry(3, first="1s", max="1s"), shards=4)
    service = FlakyService(world, dict.fromkeys(range(10), Fate.IS_REJECTED))
    for name in "abc":
        world.worker(name).work(NAME, service)
    world.produce("orders", [(f"k{number % 30}", number) for number in range(600)], every_s=0.05)
    for step, shards in enumerate((3, 6, 12, 1)):
        world.at(4.0 + 5 * step, partial(world.reshard, NAME, shards))
    world.at(24.0, lambda: world.scale("orders", 8))
    world.run(35.0)
    world.run_until_consumed()
    assert world.stored(NAME).definition.generation >= 4
    assert len({letter.key for letter in world.letters(NAME)}) == 10
    service.fates.clear()
    assert world.ask(NAME, RequestAction.REDELIVER)
    world.run_until_consumed()
    assert not world.letters(NAME)
