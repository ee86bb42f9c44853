"""Opening the next storage topics of a subscription's topic, within one generation.

One store change opens a storage topic and lets RQ and DLQ continue in storage topics that mirror
it. A storage topic in which some key would have another shard stays closed until the next
generation.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tailrace.backend.contract import Change
from tailrace.subscription.layout.mirror import next_queue_shape, switched_queue
from tailrace.subscription.store.definition import (
    StoredSubscription,
    SubscriptionDefinition,
    joined,
)
from tailrace.subscription.store.names import SUBSCRIPTIONS, dead_letter_queue, retry_queue
from tailrace.topic.composite import TOPICS, change_between
from tailrace.topic.lineage import Shape
from tailrace.topic.view import StoredDefinition


def opening_of(stored: StoredSubscription) -> Change | None:
    """Return the change that opens the next storage topics of the topic, as far as every key keeps
    its shard; None if there is none to open."""
    after = as_opened(stored).definition
    if after.opened == stored.definition.opened:
        return None
    return redefinition(stored, after)


def as_opened(stored: StoredSubscription) -> StoredSubscription:
    """Return a subscription with the storage topics that `opening_of` opens.

    A worker opens them when it comes. Whoever describes a subscription counts them as open. A
    replay keeps those that it was created over. While the generation changes none is opened.
    """
    definition = stored.definition
    if definition.replay is not None or definition.change is not None:
        return stored
    opened = stored.main_topic.reach(definition.shards, definition.opened)
    return stored._replace(definition=msgspec.structs.replace(definition, opened=opened))


def closed_storage(stored: StoredSubscription) -> int | None:
    """Return the storage topic of the topic that stays closed to this generation, because some key
    would have another shard in it; None if all are open."""
    opened = as_opened(stored).definition.opened
    return opened if opened <= stored.main.definition.pointer else None


def redefinition(stored: StoredSubscription, after: SubscriptionDefinition) -> Change:
    """Return the change to another definition of a subscription. RQ and DLQ continue in storage
    topics of the right shape."""
    key, topic = SUBSCRIPTIONS + stored.name, TOPICS + stored.definition.topic
    own = Change(
        {key: stored.version, topic: stored.main.version}, {key: msgspec.json.encode(after)}
    )
    switches = [
        change_between(
            name, before.definition, switched_queue(before.definition, shape), before.version
        )
        for name, before, shape in queue_shapes(stored, after)
        if shape != before.definition.shape
    ]
    return joined(own, *switches)


def queue_shapes(
    stored: StoredSubscription, after: SubscriptionDefinition
) -> Iterator[tuple[str, StoredDefinition, Shape]]:
    """Yield RQ and DLQ, as topics, with the shapes in which they continue with a definition."""
    main = stored.main.definition
    newest = main.storage[after.opened - 1]
    for name, queue, given in (
        (retry_queue(stored.name), stored.rq, after.rq_partitions),
        (dead_letter_queue(stored.name), stored.dlq, after.dlq_partitions),
    ):
        shape = next_queue_shape(after.strategy, main.router, newest, after.shards, given)
        yield name, queue, shape
