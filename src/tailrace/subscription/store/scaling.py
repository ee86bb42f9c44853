"""What a change of a topic's partitions means for its subscriptions, before it is made.

Where every key keeps its shard, a subscription continues in the new storage topic by itself.
Otherwise its next generation reads the new storage topic, once all before it are finished.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.backend.contract import Backend
from tailrace.subscription.layout.agreement import NamedShape, find_disagreement, valid_shards
from tailrace.subscription.store.definition import SubscriptionDefinition, decode_entry
from tailrace.subscription.store.names import SUBSCRIPTIONS
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Shape, moved_fraction


@dataclass(frozen=True, slots=True)
class ScalingEffect:
    """What a change of a topic means for one of its subscriptions.

    `closed` is the first storage topic that its next generation will read, with `next_shards`
    shards; None if no key changes its shard. `moved` is the fraction of the keys that have another
    shard in it than in the one before, and `example` one of them. `open_with` are numbers of shards
    with which no key would change its shard. `queue` is True for the consumer of a queue.
    """

    subscription: str
    shards: int
    closed: int | None = None
    moved: float = 0.0
    example: str | None = None
    open_with: tuple[int, ...] = ()
    queue: bool = False
    next_shards: int = 0


def change_effect(backend: Backend, topic: str, after: Definition) -> list[ScalingEffect]:
    """Return what the next definition of a topic means for its subscriptions, by name."""
    return [
        _effect(name, definition, topic, after)
        for name, definition in subscriptions_of(backend, topic, after.identity)
    ]


def subscriptions_of(
    backend: Backend, topic: str, identity: str
) -> Iterator[tuple[str, SubscriptionDefinition]]:
    """Yield the subscriptions of a topic, by name, not those of an earlier topic of its name, nor
    replays."""
    for entry in backend.store.scan(SUBSCRIPTIONS):
        definition = decode_entry(entry).definition
        of_topic = (definition.topic, definition.topic_identity) == (topic, identity)
        if of_topic and definition.replay is None:
            yield entry.key.removeprefix(SUBSCRIPTIONS), definition


def used_shapes(topic: Definition) -> list[Shape]:
    """Return the shapes of the storage topics up to the pointer that were not deleted."""
    return [topic.storage[each] for each in topic.storages if each <= topic.pointer]


def _effect(
    name: str, definition: SubscriptionDefinition, topic: str, after: Definition
) -> ScalingEffect:
    strategy, shards = definition.strategy, definition.shards
    for storage in range(definition.opened, after.pointer + 1):
        before, shape = after.storage[storage - 1 : storage + 1]
        pair = NamedShape(f"{topic}/{storage - 1}", before), NamedShape(f"{topic}/{storage}", shape)
        found = find_disagreement(strategy, after.router, pair, shards)
        if found is not None:
            return ScalingEffect(
                name,
                shards,
                storage,
                moved_fraction(after.router, before, shape, shards),
                found.example,
                tuple(valid_shards(strategy, after.router, used_shapes(after))),
                definition.queue,
                min(shards, shape.partitions),
            )
    return ScalingEffect(name, shards, queue=definition.queue)
