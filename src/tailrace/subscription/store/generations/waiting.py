"""What the next generation of a subscription waits for."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tailrace.backend.contract import Backend
from tailrace.subscription.layout.generation import (
    ChangePhase,
    NextGeneration,
    asked_generation,
    scaled_generation,
)
from tailrace.subscription.store.definition import StoredSubscription, SubscriptionDefinition
from tailrace.subscription.store.generations.progress import first_unfinished, unacknowledged_in


@dataclass(frozen=True, slots=True)
class WaitedFor:
    """A storage topic of MQ that must be finished before the next generation can begin, and the
    number of its unacknowledged messages."""

    topic: str
    storage: int
    messages: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.storage}"


def next_generation(stored: StoredSubscription) -> NextGeneration | None:
    """Return the generation that is to follow: the one that was asked for, or the one that opens
    the next storage topic. None if there is neither."""
    definition, change = stored.definition, stored.definition.change
    if change is None:
        if definition.replay is not None:
            return None
        return scaled_generation(stored.main_topic, definition.shards)
    if change.phase is ChangePhase.ASKED:
        return asked_generation(stored.main_topic, change.shards, uneven=change.uneven)
    return NextGeneration(change.shards, change.opened, 0)


def redefined(stored: StoredSubscription, following: NextGeneration) -> SubscriptionDefinition:
    """Return the definition of the generation that follows."""
    return msgspec.structs.replace(
        stored.definition,
        generation=stored.definition.generation + 1,
        shards=following.shards,
        opened=following.opened,
        change=None,
    )


def is_possible(backend: Backend, stored: StoredSubscription, following: NextGeneration) -> bool:
    """True if a generation may begin now."""
    return first_unfinished(backend, stored) >= following.oldest


def waited_for(
    backend: Backend, stored: StoredSubscription, following: NextGeneration
) -> list[WaitedFor]:
    """Return what a generation waits for."""
    definition, main = stored.definition, stored.main.definition
    found = []
    for storage in range(first_unfinished(backend, stored), following.oldest):
        left = unacknowledged_in(backend, stored, definition.topic, main, storage)
        found.append(WaitedFor(definition.topic, storage, left))
    return found
