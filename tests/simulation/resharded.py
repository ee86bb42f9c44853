"""Subscriptions in a simulation whose number of shards changes, and whose topic is scaled to any
number of partitions, while messages flow and fail."""

from __future__ import annotations

import contextlib
from functools import partial
from random import Random

from tailrace.errors import BackendUnavailable, OutcomeUnknown
from tailrace.subscription.store.generations.steps import advance, fence_shards
from tailrace.testing.subscriptions.world import SubscriptionWorld
from tailrace.testing.unreliable import StoreQuality, UnreliableBackend
from tests.simulation import requested, subscribed
from tests.simulation.subscribed import FAULTY_S, NAME, Trial

COUNTS = (1, 2, 3, 4, 6, 8, 12)


class Stepper:
    """A process beside the workers that takes the steps of changes, and dies between any two of its
    calls to the store."""

    def __init__(self, world: SubscriptionWorld, seed: int) -> None:
        random = Random(f"the steps of trial {seed}")
        self._world = world
        self._random = random
        self._backend = UnreliableBackend(world.storage, random)
        self._backend.quality = StoreQuality(failure=0.05, unknown=0.1)

    def step(self) -> None:
        """Take steps, and die."""
        with contextlib.suppress(BackendUnavailable, OutcomeUnknown):
            advance(self._backend, NAME)
            if self._random.random() < 0.1:
                fence_shards(self._backend, NAME)


def change_at_times(world: SubscriptionWorld, seed: int) -> None:
    """Change the number of shards and of partitions now and then."""
    random = Random(f"generations {seed}")
    for _ in range(random.randint(1, 6)):
        at = random.uniform(1, FAULTY_S)
        world.at(at, partial(_reshard, world, random.sample(COUNTS, len(COUNTS))))
    for _ in range(random.randrange(3)):
        at = random.uniform(1, FAULTY_S)
        world.at(at, partial(world.scale, "orders", random.choice(COUNTS)))
    stepper = Stepper(world, seed)
    for _ in range(random.choice([0, 20, 60])):
        world.at(random.uniform(1, FAULTY_S), stepper.step)


def _reshard(world: SubscriptionWorld, counts: list[int]) -> None:
    """Ask for the first of some numbers of shards that is possible."""
    any(world.reshard(NAME, count) for count in counts)


def run(seed: int, *, resets: bool = False) -> Trial:
    """Run a trial of a seed; every third one with requests on dead letters."""
    slice_max = 3 if seed % 5 == 1 else 0
    queue_factor = Random(f"queues {seed}").choice([None, None, None, 2])
    made = subscribed.trial(seed, slice_max=slice_max, queue_factor=queue_factor)
    change_at_times(made.world, seed)
    if resets:
        subscribed.reset_at_times(made.world, seed)
    if seed % 3 == 0:
        requested.Operator(made, seed).begin()
        made = requested.RequestedTrial(made.world, made.service)
    made.run()
    return made
