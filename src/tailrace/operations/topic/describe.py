"""Topics described: summaries, storage topics, partitions, and the route of a key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tailrace.backend.contract import Amount
from tailrace.clock import utc_time
from tailrace.errors import UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.operations.storage.storage_use import segments_in
from tailrace.operations.topic.lookup import find_topic
from tailrace.payload import ValueType
from tailrace.subscription.store.scaling import change_effect
from tailrace.topic.storage_topics import StorageTopicInfo


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in one line. `partitions` counts the partitions of the current storage topic."""

    name: str
    partitions: int
    storage_topics: int
    router: str
    content_type: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """A partition: its offsets and contents, and the partitions that are consumed before it."""

    partition: str
    start: int
    end: int
    messages: int
    bytes: int
    segments: int
    follows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StorageSummary:
    """A storage topic: its shape, state and contents. `holds` has its partitions."""

    index: int
    partitions: int
    k: int
    base: int
    sealed: bool
    takes_pushes: bool
    messages: int
    bytes: int
    holds: tuple[PartitionSummary, ...]


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """A subscription of a topic. `closed` is the first storage topic that its next generation
    reads, if any does. `queue` is True if the topic is a queue, and this its consumer."""

    name: str
    shards: int
    closed: int | None
    queue: bool = False


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """A topic with all its storage topics, oldest first. `type` is None for values of any type, and
    `order_by` if messages are pushed with their keys. `deleted` are the indices of the storage
    topics that were deleted."""

    name: str
    router: str
    content_type: str
    type: ValueType | None
    order_by: str | None
    created: datetime
    produce_pointer: int
    messages: int
    bytes: int
    storage: tuple[StorageSummary, ...]
    subscriptions: tuple[TopicSubscription, ...] = ()
    deleted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """The partition to which a key is routed now."""

    key: str
    partition: str


def list_topics(hub: Hub) -> list[TopicSummary]:
    """Return every topic in one line, by name."""
    found = []
    for name in hub.topics():
        try:
            found.append(summarize(hub, find_topic(hub, name)))
        except UnknownTopic:
            continue  # deleted meanwhile
    return found


def show_topic(hub: Hub, name: str) -> TopicDetail:
    """Return a topic. Raise `UnknownTopic` if there is none."""
    topic = find_topic(hub, name)
    pointer = topic.produce_pointer
    storage = tuple(_storage(hub, topic, info, pointer) for info in topic.storage_topics)
    definition = topic.view.definition
    return TopicDetail(
        name=name,
        router=definition.router.value,
        content_type=definition.content_type,
        type=definition.value_type,
        order_by=definition.order_by,
        created=utc_time(definition.created_ms),
        produce_pointer=pointer,
        messages=sum(each.messages for each in storage),
        bytes=sum(each.bytes for each in storage),
        storage=storage,
        subscriptions=tuple(
            TopicSubscription(each.subscription, each.shards, each.closed, each.queue)
            for each in change_effect(hub.backend, name, definition)
        ),
        deleted=tuple(definition.deleted),
    )


def route_keys(hub: Hub, name: str, keys: tuple[str, ...]) -> list[Route]:
    """Return the partition of each key."""
    topic = find_topic(hub, name)
    pointer = topic.produce_pointer
    return [Route(key, str(Partition(name, pointer, topic.route(key)))) for key in keys]


def topic_amount(hub: Hub, topic: Topic[Any]) -> Amount:
    """Count the messages of all partitions of a topic."""
    found = Amount()
    for info in topic.storage_topics:
        for number in range(info.partitions):
            found = found.plus(hub.backend.log.amount(Partition(topic.name, info.index, number)))
    return found


def summarize(hub: Hub, topic: Topic[Any]) -> TopicSummary:
    """Return a topic in one line."""
    definition = topic.view.definition
    held = topic_amount(hub, topic)
    return TopicSummary(
        name=topic.name,
        partitions=definition.shape.partitions,
        storage_topics=len(definition.storages),
        router=definition.router.value,
        content_type=definition.content_type,
        messages=held.records,
        bytes=held.bytes,
    )


def _storage(hub: Hub, topic: Topic[Any], info: StorageTopicInfo, pointer: int) -> StorageSummary:
    holds = tuple(_partition(hub, topic, info, number) for number in range(info.partitions))
    return StorageSummary(
        index=info.index,
        partitions=info.partitions,
        k=info.k,
        base=info.base,
        sealed=info.sealed,
        takes_pushes=info.index == pointer,
        messages=sum(each.messages for each in holds),
        bytes=sum(each.bytes for each in holds),
        holds=holds,
    )


def _partition(
    hub: Hub, topic: Topic[Any], info: StorageTopicInfo, number: int
) -> PartitionSummary:
    partition = Partition(topic.name, info.index, number)
    held = hub.backend.log.amount(partition)
    return PartitionSummary(
        partition=str(partition),
        start=info.starts[number],
        end=info.ends[number],
        messages=held.records,
        bytes=held.bytes,
        segments=len(segments_in(hub, partition)),
        follows=tuple(map(str, sorted(topic.follows(partition)))),
    )
