"""The definition of a subscription, and its creation.

A generation reads the first `opened` storage topics of its topic. RQ and DLQ mirror the newest of
them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from tailrace.amount import is_whole
from tailrace.backend.contract import Backend, Change, Entry
from tailrace.delivery.filter.batch_filter import BatchFilter
from tailrace.delivery.filter.message_filter import MessageFilter
from tailrace.delivery.load_control import LoadControl
from tailrace.delivery.retry import Retry
from tailrace.errors import InvalidValue, UnknownTopic
from tailrace.group.store.start import Start, format_start
from tailrace.message import Partition
from tailrace.subscription.endpoint.definition import Endpoint
from tailrace.subscription.layout.agreement import NamedShape, check_agreement, valid_shards
from tailrace.subscription.layout.assignment import CONTIGUOUS, Assignment, assignment
from tailrace.subscription.layout.generation import ChangePhase, GenerationChange, MainTopic
from tailrace.subscription.layout.keys import KeyShards
from tailrace.subscription.layout.mirror import first_queue, queue_shape
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.replay_bounds import ReplayBounds
from tailrace.subscription.shard.streams import ShardStreams, streams_of
from tailrace.subscription.store.names import (
    SUBSCRIPTIONS,
    ShardName,
    dead_letter_queue,
    retry_queue,
    worker_group,
)
from tailrace.topic.composite import TOPICS, creation
from tailrace.topic.consumers import consumer_key
from tailrace.topic.lineage import Shape
from tailrace.topic.offset_spec import Extreme
from tailrace.topic.view import StoredDefinition, find

_MILLISECOND: Final = timedelta(milliseconds=1)


class SubscriptionDefinition(msgspec.Struct, frozen=True):
    """A subscription without its name.

    `topic_identity` tells its topic from a later one of the same name. `rq_partitions` and
    `dlq_partitions` are as given; None mirrors the topic. Messages that do not match `filter` are
    acknowledged and not delivered. `start` is where it began, as `format_start` writes it. `queue`:
    it is the consumer of a queue, which has the name of its topic. `replay` has the bounds of one
    that replays a queue. `endpoint` is where its workers deliver; without it they call handlers.
    `load` is its load control. `change` is the change to the next generation, if one is under way.
    `reset` is the number of the last offset reset of its topic, 0 before the first.
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
    filter: str | None = None
    start: str = Extreme.EARLIEST.value
    queue: bool = False
    replay: ReplayBounds | None = None
    endpoint: Endpoint | None = None
    load: LoadControl = LoadControl()
    change: GenerationChange | None = None
    reset: int = 0

    @property
    def phase(self) -> ChangePhase | None:
        """How far the change to the next generation is; None if there is none."""
        return None if self.change is None else self.change.phase

    @property
    def strategy(self) -> Assignment:
        """The strategy that divides partitions among shards."""
        return assignment(self.assignment)

    @property
    def retry(self) -> Retry:
        """The retry policy."""
        first, longest = self.first_ms * _MILLISECOND, self.max_ms * _MILLISECOND
        return Retry(self.attempts, first=first, max=longest)

    @property
    def policy(self) -> OnDeadLetter:
        """What a dead letter means for its key."""
        return OnDeadLetter(self.on_dead_letter)

    @property
    def message_filter(self) -> BatchFilter | None:
        """The filter; None if all messages are delivered."""
        expression = None if self.filter is None else MessageFilter(self.filter)
        return expression if self.replay is None else self.replay.filter(expression)


class DefinitionEntry(NamedTuple):
    """A definition, and the version of its store entry."""

    definition: SubscriptionDefinition
    version: int


class StoredSubscription(NamedTuple):
    """A definition and the topics it names, with the versions of their store entries."""

    name: str
    definition: SubscriptionDefinition
    version: int
    main: StoredDefinition
    rq: StoredDefinition
    dlq: StoredDefinition

    def unit(self, shard: int) -> str:
        """Return the name of a shard as a unit that is granted."""
        return str(ShardName(self.definition.generation, shard))

    @property
    def units(self) -> list[str]:
        """The names of all shards as units that are granted."""
        return [self.unit(shard) for shard in range(self.definition.shards)]

    @property
    def main_topic(self) -> MainTopic:
        """The storage topics of the topic up to the one that takes pushes."""
        definition, main = self.definition, self.main.definition
        shapes = main.storage[: main.pointer + 1]
        return MainTopic(definition.strategy, main.router, shapes, definition.opened)

    @property
    def newest(self) -> Shape:
        """The shape of the newest storage topic that is open."""
        return self.main.definition.storage[self.definition.opened - 1]

    @property
    def keys(self) -> KeyShards:
        """The shards of messages."""
        definition, main = self.definition, self.main.definition
        shapes = main.storage[: definition.opened]
        return KeyShards(definition.strategy, main.router, shapes, definition.shards)

    def fed_storage(self, queue: StoredDefinition) -> list[int]:
        """Return the storage topics of RQ or DLQ in which some key has another shard than in MQ.
        What they hold is fed. In the first generation there is none."""
        if not self.definition.generation:
            return []
        agrees, of = self.keys.agrees, queue.definition
        return [each for each in of.storages if not agrees(of.storage[each])]

    def queue_partitions(self, queue: Queue, storage: int) -> list[Partition]:
        """Return the partitions of a storage topic of RQ or DLQ."""
        is_rq = queue is Queue.RQ
        topic = retry_queue(self.name) if is_rq else dead_letter_queue(self.name)
        shape = (self.rq if is_rq else self.dlq).definition.storage[storage]
        return [Partition(topic, storage, number) for number in range(shape.partitions)]

    @property
    def moved_storage(self) -> list[int]:
        """The open storage topics of MQ in which some key has another shard than in the newest.
        They are finished. In the first generation there is none."""
        if not self.definition.generation:
            return []
        last = self.definition.opened - 1
        agrees = self.main_topic.agrees
        return [each for each in range(last) if not agrees(each, last, self.definition.shards)]

    def streams(self, shard: int) -> ShardStreams:
        """Return the partitions of a shard. Each partition has one, also in storage topics that are
        fed."""
        definition = self.definition
        return streams_of(
            definition.strategy,
            shard,
            definition.shards,
            main=(definition.topic, self.main.definition),
            opened=definition.opened,
            rq=(retry_queue(self.name), self.rq.definition),
            dlq=(dead_letter_queue(self.name), self.dlq.definition),
            replay=definition.replay,
        )


class NewSubscription(NamedTuple):
    """A subscription to create.

    Without `shards`, it gets one for each partition of the newest storage topic, or fewer if older
    storage topics need it. A number that does not divide the partitions needs `uneven`. It starts
    at `start` in the messages that are there when it is created; with `replay`, it has the bounds
    of a replay instead.
    """

    topic: str
    retry: Retry
    policy: OnDeadLetter = OnDeadLetter.BLOCK
    shards: int | None = None
    rq_partitions: int | None = None
    dlq_partitions: int | None = None
    assignment: str = CONTIGUOUS
    filter: str | None = None
    uneven: bool = False
    start: Start = Extreme.EARLIEST
    queue: bool = False
    replay: ReplayBounds | None = None
    endpoint: Endpoint | None = None
    load: LoadControl = LoadControl()


def find_definition(backend: Backend, name: str) -> DefinitionEntry | None:
    """Return the definition of a subscription; None if there is none of that name."""
    entry = backend.store.get(SUBSCRIPTIONS + name)
    return None if entry is None or entry.value is None else decode_entry(entry)


def decode_entry(entry: Entry) -> DefinitionEntry:
    """Decode the store entry of a definition, which was not removed."""
    definition = msgspec.json.decode(entry.value or b"", type=SubscriptionDefinition)
    return DefinitionEntry(definition, entry.version)


def find_subscription(backend: Backend, name: str) -> StoredSubscription | None:
    """Return a subscription with its topics; None if there is none of that name.

    `UnknownTopic` if one of its topics was deleted, even if another topic has the name now. A
    change between the reads is found by the versions.
    """
    entry = find_definition(backend, name)
    if entry is None:
        return None
    definition, version = entry
    found = [
        find(backend, topic)
        for topic in (definition.topic, retry_queue(name), dead_letter_queue(name))
    ]
    topics = [stored for stored in found if stored is not None]
    identity = definition.topic_identity
    if len(topics) < len(found) or topics[0].definition.identity != identity:
        if find_definition(backend, name) is None:  # deleted since it was read
            return None
        kind = "queue" if definition.queue else "subscription"
        raise UnknownTopic(definition.topic, backend.name, subscription=name, kind=kind)
    return StoredSubscription(name, definition, version, *topics)


def creation_of(
    name: str, new: NewSubscription, main: StoredDefinition, *, now_ms: int, identity: str
) -> Change:
    """Return the change that creates a subscription with its queues; none of them may exist.

    `InvalidValue` if a key would have different shards in the topic and in the queues, with an
    example, and for a filter that does not parse.
    """
    if new.filter is not None:
        MessageFilter(new.filter)
    strategy, topic = assignment(new.assignment), main.definition
    opened = topic.pointer + 1 if new.replay is None else new.replay.opened
    storages = [each for each in topic.storages if each < opened]
    shapes = [topic.storage[each] for each in storages]
    newest = shapes[-1]
    shards = new.shards
    if shards is None:
        shards = valid_shards(strategy, topic.router, shapes)[0]
    if not (is_whole(shards) and 1 <= shards <= newest.partitions):
        raise InvalidValue("shards", shards, f"1 to {newest.partitions}, its partitions")
    if newest.partitions % shards and not new.uneven:
        raise _uneven(shards, valid_shards(strategy, topic.router, shapes))
    new.load.check(shards)
    rq_shape = queue_shape(newest, shards, new.rq_partitions, "rq_partitions")
    dlq_shape = queue_shape(newest, shards, new.dlq_partitions, "dlq_partitions")
    named = [
        NamedShape(f"{new.topic}/{i}", shape)
        for i, shape in zip(storages[:-1], shapes[:-1], strict=True)
    ]
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
        *retry_ms(new.retry),
        new.policy.value,
        assignment=new.assignment,
        rq_partitions=new.rq_partitions,
        dlq_partitions=new.dlq_partitions,
        filter=new.filter,
        start=format_start(new.start),
        queue=new.queue,
        replay=new.replay,
        endpoint=new.endpoint,
        load=new.load,
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


def retry_ms(retry: Retry) -> tuple[int, int]:
    """Return the first and the longest delay of a retry policy as they are stored."""
    first, longest = (max(1, round(each / _MILLISECOND)) for each in (retry.first, retry.max))
    return first, longest


def _uneven(shards: int, valid: list[int]) -> InvalidValue:
    return InvalidValue(
        "shards",
        shards,
        f"numbers that divide the partitions, for example {', '.join(map(str, valid))}",
        "any other: uneven=True, or --uneven",
    )


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
