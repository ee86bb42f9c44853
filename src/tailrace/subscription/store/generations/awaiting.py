"""Waiting for the next generation, and taking the steps to it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import UnknownSubscription
from tailrace.subscription.layout.generation import ChangePhase
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.generations.steps import advance, fence_shards

LOOK_S: Final = 1.0
"""How often to look although no commit came."""

ENDING_MAX_S: Final = 60.0
"""How long to wait for the owners of shards: after that they are fenced where they are."""


def await_generation(
    backend: Backend,
    name: str,
    clock: Clock,
    timeout_s: float | None,
    watch: Callable[[StoredSubscription], None] = lambda stored: None,
) -> bool:
    """Wait until no change of the generation is under way. False after the timeout.

    This process takes the steps that are possible, so that no worker has to run. `watch` is called
    whenever something may have changed. Raises `UnknownSubscription`.
    """
    begun = clock.monotonic()
    ending: float | None = None
    follower = backend.follower()
    try:
        while True:
            follower.arm()
            stored = advance(backend, name)
            if stored is None:
                raise UnknownSubscription(name, backend.name)
            if stored.definition.change is None:
                return True
            watch(stored)
            now = clock.monotonic()
            if stored.definition.phase is ChangePhase.ENDING:
                ending = now if ending is None else ending
                if now - ending >= ENDING_MAX_S:
                    fence_shards(backend, name)
                    continue
            left = LOOK_S if timeout_s is None else min(LOOK_S, begun + timeout_s - now)
            if left <= 0:
                return False
            follower.wait(left)
    finally:
        follower.close()
