"""The definition of a subscription, its creation, and the opening of storage topics.

A generation reads the first `opened` storage topics of its topic. RQ and DLQ mirror the newest of
them. One store change opens another one and lets RQ and DLQ continue in storage topics that mirror
it. A storage topic in which some key would have another shard stays closed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import msgspec

from tailrace.backend.contract import Backend, Change
from tailrace.delivery.retry import Retry
from tailrace.errors import InvalidValue, UnknownTopic
from tailrace.subscription.shard.agreement import NamedShape, check_agreement, valid_shards
from tailrace.subscription.shard.assignment import CONTIGUOUS, Assignment, assignment
from tailrace.subscription.shard.mirror import first_queue, queue_shape, switched_queue
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.streams import ShardStreams, streams_of
from tailrace.subscription.store.names import (
    SUBSCRIPTIONS,
    dead_letter_queue,
    retry_queue,
    worker_group,
)
from tailrace.topic.composite import TOPICS, change_between, creation
from tailrace.topic.consumers import consumer_key
from tailrace.topic.view import StoredDefinition, find, names


class SubscriptionDefinition(msgspec.Struct, frozen=True):
    """A subscription without its name.

    `topic_identity` tells its topic from a later one of the same name. `rq_partitions` and
    `dlq_partitions` are as given; None mirrors the topic.
    """

    topic: str
    topic_identity: str
    identity: str
    created_ms: int
    shards: int
    opened: int
    attempts: int | None
    first_ms: int
    max_ms: int
    on_dead_letter: str = OnDeadLetter.BLOCK.value
    generation: int = 0
    assignment: str = CONTIGUOUS
    rq_partitions: int | None = None
    dlq_partitions: int | None = None

    @property
    def strategy(self) -> Assignment:
        """The strategy that divides partitions among shards."""
        return assignment(self.assignment)

    @property
    def retry(self) -> Retry:
        """The retry policy."""
        first, longest = (timedelta(milliseconds=ms) for ms in (self.first_ms, self.max_ms))
        return Retry(self.attempts, first=first, max=longest)

    @property
    def policy(self) -> OnDeadLetter:
        """What a dead letter means for its key."""
        return OnDeadLetter(self.on_dead_letter)


class StoredSubscription(NamedTuple):
    """A definition and the topics it names, with the versions of their store entries."""

    name: str
    definition: SubscriptionDefinition
    version: int
    main: StoredDefinition
    rq: StoredDefinition
    dlq: StoredDefinition

    def streams(self, shard: int) -> ShardStreams:
        """Return the partitions of a shard."""
        definition = self.definition
        return streams_of(
            definition.strategy,
            shard,
            definition.shards,
            main=(definition.topic, self.main.definition),
            opened=definition.opened,
            rq=(retry_queue(self.name), self.rq.definition),
            dlq=(dead_letter_queue(self.name), self.dlq.definition),
        )


class NewSubscription(NamedTuple):
    """A subscription to create. Without `shards`, one for each partition of the newest storage
    topic, or fewer if older storage topics need it."""

    topic: str
    retry: Retry
    policy: OnDeadLetter = OnDeadLetter.BLOCK
    shards: int | None = None
    rq_partitions: int | None = None
    dlq_partitions: int | None = None
    assignment: str = CONTIGUOUS


def find_subscription(backend: Backend, name: str) -> StoredSubscription | None:
    """Return a subscription with its topics; None if there is none of that name.

    `UnknownTopic` if one of its topics was deleted. A change between the reads is found by the
    versions.
    """
    entry = backend.store.get(SUBSCRIPTIONS + name)
    if entry is None or entry.value is None:
        return None
    definition = msgspec.json.decode(entry.value, type=SubscriptionDefinition)
    topics = []
    for topic in (definition.topic, retry_queue(name), dead_letter_queue(name)):
        stored = find(backend, topic)
        if stored is None:
            raise UnknownTopic(topic, backend.name, names(backend))
        topics.append(stored)
    return StoredSubscription(name, definition, entry.version, *topics)


def creation_of(
    name: str, new: NewSubscription, main: StoredDefinition, *, now_ms: int, identity: str
) -> Change:
    """Return the change that creates a subscription with its queues; none of them may exist.

    `InvalidValue` if a key would have different shards in the topic and in the queues, with an
    example.
    """
    strategy, topic = assignment(new.assignment), main.definition
    opened = topic.pointer + 1
    shapes = topic.storage[:opened]
    newest = shapes[-1]
    shards = new.shards
    if shards is None:
        shards = valid_shards(strategy, topic.router, shapes)[0]
    if not 1 <= shards <= newest.partitions:
        raise InvalidValue("shards", shards, f"1 to {newest.partitions}, its partitions")
    rq_shape = queue_shape(newest, shards, new.rq_partitions, "rq_partitions")
    dlq_shape = queue_shape(newest, shards, new.dlq_partitions, "dlq_partitions")
    named = [NamedShape(f"{new.topic}/{i}", shape) for i, shape in enumerate(shapes[:-1])]
    named += [NamedShape("RQ", rq_shape), NamedShape("DLQ", dlq_shape)]
    named.append(NamedShape(f"{new.topic}/{opened - 1}", newest))
    check_agreement(strategy, topic.router, named, shards)
    definition = SubscriptionDefinition(
        new.topic,
        topic.identity,
        identity,
        now_ms,
        shards,
        opened,
        new.retry.attempts,
        round(new.retry.first.total_seconds() * 1000),
        round(new.retry.max.total_seconds() * 1000),
        new.policy.value,
        assignment=new.assignment,
        rq_partitions=new.rq_partitions,
        dlq_partitions=new.dlq_partitions,
    )
    queues = {retry_queue(name): rq_shape, dead_letter_queue(name): dlq_shape}
    changes = [
        creation(queue, first_queue(topic, shape, created_ms=now_ms, identity=identity))
        for queue, shape in queues.items()
    ]
    writes: dict[str, bytes | None] = {SUBSCRIPTIONS + name: msgspec.json.encode(definition)}
    for each in (new.topic, *queues):
        writes[consumer_key(each, worker_group(name))] = b""
    own = Change({SUBSCRIPTIONS + name: 0, TOPICS + new.topic: main.version}, writes)
    return joined(own, *changes)


def opening_of(stored: StoredSubscription) -> Change | None:
    """Return the change that opens the next storage topics of the topic, as far as every key keeps
    its shard; None if there is none to open."""
    definition, topic = stored.definition, stored.main.definition
    opened = definition.opened
    while opened <= topic.pointer and definition.strategy.consistent(
        topic.router, topic.storage[opened - 1 : opened + 1], definition.shards
    ):
        opened += 1
    if opened == definition.opened:
        return None
    newest = topic.storage[opened - 1]
    after = msgspec.structs.replace(definition, opened=opened)
    changes = [
        Change(
            {
                SUBSCRIPTIONS + stored.name: stored.version,
                TOPICS + definition.topic: stored.main.version,
            },
            {SUBSCRIPTIONS + stored.name: msgspec.json.encode(after)},
        )
    ]
    for queue, before, given in (
        (retry_queue(stored.name), stored.rq, definition.rq_partitions),
        (dead_letter_queue(stored.name), stored.dlq, definition.dlq_partitions),
    ):
        shape = queue_shape(newest, definition.shards, given, "partitions")
        if shape != before.definition.shape:
            switched = switched_queue(before.definition, shape)
            changes.append(change_between(queue, before.definition, switched, before.version))
    return joined(*changes)


def closed_storage(stored: StoredSubscription) -> int | None:
    """Return the storage topic of the topic that stays closed, because some key would have another
    shard in it; None if all are open."""
    opened = stored.definition.opened
    return opened if opened <= stored.main.definition.pointer else None


def joined(*changes: Change) -> Change:
    """Return one change that does what several do, of different entries."""
    expect: dict[str, int] = {}
    writes: dict[str, bytes | None] = {}
    for change in changes:
        expect |= change.expect
        writes |= change.writes
    return Change(
        expect,
        writes,
        create=tuple(each for change in changes for each in change.create),
        seal=tuple(each for change in changes for each in change.seal),
        delete=tuple(each for change in changes for each in change.delete),
    )
