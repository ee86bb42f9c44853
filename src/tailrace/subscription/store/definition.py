"""The definition of a subscription, its creation, and the opening of storage topics.

A generation reads the first `opened` storage topics of its topic. RQ and DLQ mirror the newest of
them. One store change opens another one and lets RQ and DLQ continue in storage topics that mirror
it. A storage topic in which some key would have another shard stays closed.
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
from tailrace.subscription.endpoint.definition import Endpoint
from tailrace.subscription.layout.agreement import NamedShape, check_agreement, valid_shards
from tailrace.subscription.layout.assignment import CONTIGUOUS, Assignment, assignment
from tailrace.subscription.layout.mirror import first_queue, queue_shape, switched_queue
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.replay_bounds import ReplayBounds
from tailrace.subscription.shard.streams import ShardStreams, streams_of
from tailrace.subscription.store.names import (
    SUBSCRIPTIONS,
    ShardName,
    dead_letter_queue,
    retry_queue,
    worker_group,
)
from tailrace.topic.composite import TOPICS, change_between, creation
from tailrace.topic.consumers import consumer_key
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
    `load` is its load control.
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


def opening_of(stored: StoredSubscription) -> Change | None:
    """Return the change that opens the next storage topics of the topic, as far as every key keeps
    its shard; None if there is none to open."""
    definition, topic = stored.definition, stored.main.definition
    after = as_opened(stored).definition
    if after.opened == definition.opened:
        return None
    newest = topic.storage[after.opened - 1]
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


def as_opened(stored: StoredSubscription) -> StoredSubscription:
    """Return a subscription with the storage topics that `opening_of` opens.

    A worker opens them when it comes. Whoever describes a subscription counts them as open. A
    replay keeps those that it was created over.
    """
    definition, topic = stored.definition, stored.main.definition
    if definition.replay is not None:
        return stored
    opened = definition.opened
    while opened <= topic.pointer and definition.strategy.consistent(
        topic.router, topic.storage[opened - 1 : opened + 1], definition.shards
    ):
        opened += 1
    return stored._replace(definition=msgspec.structs.replace(definition, opened=opened))


def closed_storage(stored: StoredSubscription) -> int | None:
    """Return the storage topic of the topic that stays closed, because some key would have another
    shard in it; None if all are open."""
    opened = as_opened(stored).definition.opened
    return opened if opened <= stored.main.definition.pointer else None


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
