"""Dividing the shards of a queue evenly among its consumers.

The leader of the consumers' group does so by itself, whenever one joins or leaves. Here it is only
awaited, and what moved is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.queue.draining import LOOK_S
from tailrace.subscription.store.definition import SubscriptionDefinition
from tailrace.subscription.store.lifecycle import read_definition
from tailrace.subscription.store.owners import shard_owners, workers


class ShardMove(NamedTuple):
    """A shard that another consumer has than before; None if it had or has none."""

    shard: int
    before: str | None
    after: str | None


class Rebalanced(NamedTuple):
    """The shards of each consumer, and what moved. `balanced` is False if the consumers did not
    have numbers of shards that differ by at most one within the time."""

    balanced: bool
    shards: dict[str, tuple[int, ...]]
    moves: tuple[ShardMove, ...]


def rebalance(backend: Backend, name: str, clock: Clock, timeout_s: float) -> Rebalanced:
    """Wait until the shards are divided evenly, and say what moved meanwhile."""
    definition = read_definition(backend, name).definition
    before = _owners(backend, name, definition)
    deadline = clock.monotonic() + timeout_s
    follower = backend.follower()
    try:
        while True:
            follower.arm()
            after = _owners(backend, name, definition)
            shards = _shards(backend, name, definition)
            balanced = _balanced(shards, definition.shards)
            left = deadline - clock.monotonic()
            if balanced or left <= 0:
                moves = tuple(
                    ShardMove(shard, before.get(shard), after.get(shard))
                    for shard in range(definition.shards)
                    if before.get(shard) != after.get(shard)
                )
                return Rebalanced(balanced, shards, moves)
            follower.wait(min(LOOK_S, left))
    finally:
        follower.close()


def _owners(backend: Backend, name: str, definition: SubscriptionDefinition) -> dict[int, str]:
    return {shard: each.worker for shard, each in shard_owners(backend, name, definition).items()}


def _shards(
    backend: Backend, name: str, definition: SubscriptionDefinition
) -> dict[str, tuple[int, ...]]:
    owners = shard_owners(backend, name, definition)
    return {each.id: each.shards for each in workers(backend, name, owners)}


def _balanced(shards: Mapping[str, tuple[int, ...]], count: int) -> bool:
    """True if every shard has an owner, and the owners' numbers of shards differ by at most one."""
    if not shards:
        return True
    counts = Counter(map(len, shards.values()))
    return sum(map(len, shards.values())) == count and max(counts) - min(counts) <= 1
