"""Subscriptions keep their guarantees under faults, and in cases that deserve a name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tailrace import Delivery, Retry
from tailrace.delivery.key_lanes import KeyLanes, LaneName
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.lag import KeyLag
from tailrace.subscription.shard.machine import ShardMachine
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.slices import BatchSlice
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.testing.faults import Faults
from tailrace.testing.simulation import Violation
from tailrace.testing.subscriptions.worker import KillWorker
from tailrace.testing.subscriptions.world import SubscriptionWorld
from tailrace.testing.unreliable import StoreQuality
from tests.simulation.seeded_trials import Trials, batch_of
from tests.simulation.subscribed import NAME, Fate, FlakyService, run
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

SEEDS = count("subscription_seeds", test=40, soak=2000)
BATCHES = 8


@pytest.mark.part("subscriptions")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_subscriptions_keep_their_promises_under_faults_and_scaling(
    batch: int, record_evidence: RecordEvidence
) -> None:
    what = f"virtual minutes of a subscription under faults, batch {batch + 1} of {BATCHES}"
    seeds = batch_of(SEEDS, batch, BATCHES)
    Trials(run).assert_kept(what, seeds, "subscriptions", record_evidence)


SLICE_SEEDS = count("slice_seeds", test=30, soak=1000)


@pytest.mark.part("queues")
@pytest.mark.timeout(3000)
def test_calls_of_several_messages_keep_the_promises_too(record_evidence: RecordEvidence) -> None:
    trials = Trials(lambda seed: run(seed, pauses=seed % 3 == 0, slice_max=3))
    what = "virtual minutes of a subscription with batches under faults"
    trials.assert_kept(what, range(SLICE_SEEDS), "queues", record_evidence)


@pytest.mark.parametrize("seed", [398, 819])
def test_a_message_that_was_called_alone_is_called_alone_again_and_not_in_a_slice(
    seed: int,
) -> None:
    run(seed, pauses=seed % 3 == 0, slice_max=3)


def without_the_lanes_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is called although a key of it lags, or has an earlier message."""
    monkeypatch.setattr(KeyLag, "holds_back", lambda lag, turn: False)


def without_the_lane_of_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slices of a partition are called in any order, and at the same time."""
    right = KeyLanes.append

    def append(lanes: KeyLanes, name: LaneName, id: int) -> None:
        right(lanes, -1 - id if isinstance(name, int) and name < 0 else name, id)

    monkeypatch.setattr(KeyLanes, "append", append)


def without_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that may have ended a worker are called together with others."""
    monkeypatch.setattr(BatchSlice, "overlaps", lambda part, offsets: False)


@pytest.mark.parametrize(
    ("mutate", "found"),
    [
        (without_the_lanes_of_keys, "two messages|handled message"),
        (without_the_lane_of_the_partition, "two messages|handled message"),
        (without_suspects, "has not consumed"),
    ],
)
def test_a_missing_safeguard_of_slices_is_found(
    mutate: Callable[[pytest.MonkeyPatch], None], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(0, slice_max=3)
    mutate(monkeypatch)
    with pytest.raises(Violation, match=found):
        run(0, slice_max=3)


PAUSE_SEEDS = count("pause_seeds", test=30, soak=1000)


@pytest.mark.part("queues")
@pytest.mark.timeout(3000)
def test_a_paused_subscription_is_quiet_when_it_says_so(record_evidence: RecordEvidence) -> None:
    trials = Trials(lambda seed: run(seed, pauses=True))
    what = "virtual minutes of a subscription with pauses under faults, messages counted"
    trials.assert_kept(what, range(PAUSE_SEEDS), "queues", record_evidence)


def test_a_commit_without_its_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    start = ShardMachine.start_commit

    def without_counts(machine: ShardMachine) -> ShardCommit | None:
        commit = start(machine)
        if commit is not None and commit.acks:
            commit.counts = None
        return commit

    monkeypatch.setattr(ShardMachine, "start_commit", without_counts)
    with pytest.raises(Violation, match=r"messages, .* are counted"):
        run(0)


def test_a_pause_that_does_not_wait_for_calls_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardMachine, "_quiet", True)
    monkeypatch.setattr(WorkerMachine, "_look_if_settled", lambda machine: None)
    with pytest.raises(Violation, match="is quiet, and"):
        run(8, pauses=True)


@pytest.mark.parametrize("seed", [22, 54, 74, 91, 185, 225])
def test_worlds_that_broke_a_promise_once_keep_it(seed: int) -> None:
    run(seed)


def test_the_same_seed_replays_identically_in_another_process() -> None:
    """Also with another hash seed, messages without a key, and requests on dead letters."""
    replay = (
        "from tests.simulation.requested import run\n"
        "for seed in (3, 6, 8): print(run(seed).world.simulation.trace.text())\n"
    )
    traces = []
    for hash_seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", replay]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        traces.append(done.stdout)
    assert traces[0] == traces[1]
    assert traces[0].count("\n") > 500


def a_subscription(
    handler: Callable[[Delivery[Any]], object],
    *,
    processes: str = "a",
    partitions: int = 4,
    faults: Faults | None = None,
    policy: OnDeadLetter = OnDeadLetter.BLOCK,
    concurrency: int = 8,
    attempts: int = 3,
) -> SubscriptionWorld:
    world = SubscriptionWorld(1, faults)
    world.topic("orders", partitions=partitions)
    retry = Retry(attempts, first="5s", max="5s")
    world.subscription(NAME, "orders", retry=retry, policy=policy)
    for name in processes:
        world.worker(name).work(NAME, handler, concurrency=concurrency)
    return world


def test_one_failure_with_many_followers_is_done_soon_after_its_delay() -> None:
    world = a_subscription(lambda delivery: None, processes="")
    world.worker("a").work(NAME, FlakyService(world, {0: Fate.FAILS_ONCE}))
    world.run(3.0)
    for number in range(300):
        world.push("orders", number, key="a")
    assert world.run_until_consumed() < 15


def test_other_keys_do_not_wait_for_a_key_that_fails() -> None:
    world = SubscriptionWorld(1)
    world.topic("orders", partitions=1)
    world.subscription(NAME, "orders", retry=Retry(3, first="5s", max="5s"))
    service = FlakyService(world, {0: Fate.FAILS})
    world.worker("a").work(NAME, service, concurrency=8)
    for number in range(10):
        world.push("orders", number, key="bad")
    for number in range(10, 60):
        world.push("orders", number, key=f"k{number}")
    world.run(2.0)
    assert set(service.positions.values()) == {0, *range(10, 60)}
    assert service.failures == {0: 1}


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_message_that_kills_its_worker_is_parked_and_nothing_that_was_beside_it(
    attempts: int,
) -> None:
    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 7:
            raise KillWorker

    world = a_subscription(handler, processes="a", concurrency=64, attempts=attempts)
    for number in range(60):
        world.push("orders", number, key=f"k{number}")

    def revive() -> None:
        if not world.worker("a").alive:
            world.worker("a").start()
        world.at(world.now + 1.0, revive)

    revive()
    world.run(60)
    world.run_until_consumed()
    dead = world.subscription_checks.attempted_dead(NAME)
    assert len(dead) == 1
    (position,) = dead
    assert world.subscription_checks.calls[NAME, position] == 1 + attempts


def test_a_store_that_fails_under_failures_acknowledges_nothing_and_loses_nothing() -> None:
    world = a_subscription(lambda delivery: None, processes="")
    service = FlakyService(world, dict.fromkeys(range(40), Fate.FAILS_ONCE))
    world.worker("a").work(NAME, service)
    world.run(3.0)
    store = world.store_of("a")
    for number in range(40):
        world.push("orders", number, key=f"k{number % 10}")
    world.at(world.now + 0.01, lambda: setattr(store, "down", True))
    world.at(world.now + 10.0, lambda: setattr(store, "down", False))
    world.run(12.0)
    world.run_until_consumed()
    assert not world.subscription_checks.dead[NAME]


def test_a_worker_that_was_stopped_during_a_call_writes_nothing_late() -> None:
    slow: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        slow.append(delivery.value)

    world = a_subscription(handler, processes="ab", partitions=2)
    world.run(5.0)
    for number in range(20):
        world.push("orders", number, key=f"k{number}")
    world.at(world.now + 0.005, lambda: world.worker("a").pause(20.0))
    world.run(40.0)
    world.run_until_consumed()
    assert set(slow) == set(range(20))


def test_commits_of_unknown_outcome_store_no_message_twice() -> None:
    faults = Faults(store=StoreQuality(unknown=0.3))
    world = SubscriptionWorld(2, faults)
    world.topic("orders", partitions=2)
    world.subscription(NAME, "orders", retry=Retry(3, first="300ms", max="1s"))
    service = FlakyService(world, dict.fromkeys(range(0, 60, 2), Fate.FAILS))
    for name in "ab":
        world.worker(name).work(NAME, service)
    orders = [(f"k{number % 6}", number) for number in range(60)]
    world.produce("orders", orders, every_s=0.2)
    world.run(20.0)
    world.run_until_consumed()
    assert len(world.subscription_checks.dead[NAME]) >= 30


def test_a_healthy_handler_empties_the_retry_queue_while_messages_keep_coming() -> None:
    world = a_subscription(lambda delivery: None, processes="")
    service = FlakyService(world, {0: Fate.FAILS_TWICE})
    world.worker("a").work(NAME, service)
    world.produce("orders", [("a", number) for number in range(300)], every_s=0.1)
    world.run(35.0)
    session = world.worker("a").sessions[NAME]
    lags = [
        len(lanes)
        for owned in session.machine.shards.values()
        for lanes in owned.machine.lag.lanes.values()
    ]
    assert sum(lags) == 0
