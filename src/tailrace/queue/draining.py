"""Waiting until nothing of a paused queue is in flight, in any process.

The owner of each shard stores, with its counts, the version of the pause for which nothing was in
flight any more. A shard without an owner has nothing in flight: its next owner finds the pause.
"""

from __future__ import annotations

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.subscription.shard.commit.counts import counts_key, decode_counts
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.store.owners import shard_owners
from tailrace.subscription.store.pause import pause_version

LOOK_S = 1.0
"""How often to look although no commit came: a process that was killed commits nothing."""


def busy_shards(backend: Backend, name: str, pause: int) -> list[int]:
    """Return the shards whose owners have not said that nothing is in flight since a pause."""
    stored = read_subscription(backend, name)
    found = []
    for shard in shard_owners(backend, name, stored.definition):
        counts = decode_counts(backend.table.get(*counts_key(name, stored.unit(shard))))
        if counts.quiet < pause:
            found.append(shard)
    return found


def await_quiet(backend: Backend, name: str, clock: Clock, timeout_s: float | None) -> bool:
    """Wait until nothing of a paused queue is in flight. False after the timeout, or if the queue
    is not paused any more."""
    deadline = None if timeout_s is None else clock.monotonic() + timeout_s
    follower = backend.follower()
    try:
        while pause := pause_version(backend, name):
            follower.arm()
            if not busy_shards(backend, name, pause):
                return True
            left = LOOK_S if deadline is None else min(LOOK_S, deadline - clock.monotonic())
            if left <= 0:
                return False
            follower.wait(left)
        return False
    finally:
        follower.close()
