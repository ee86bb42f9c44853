"""Topics: making them, listing them, showing one, and where its keys go."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from tailrace.errors import UnknownTopic
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.operations.holdings import Held, held_in, total
from tailrace.topic.composite import check_name
from tailrace.topic.lineage import check_count
from tailrace.topic.own import check_new_topic
from tailrace.topic.router import RouterKind
from tailrace.topic.topic import StorageTopicInfo, Topic


class ValueKind(StrEnum):
    """What the values of a new topic are."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


_PYTHON_TYPES: Final[dict[ValueKind, Any]] = {
    ValueKind.JSON: None,
    ValueKind.TEXT: str,
    ValueKind.BYTES: bytes,
}


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in one line; `partitions` are those that take pushes now."""

    name: str
    partitions: int
    storage_topics: int
    router: str
    content_type: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """A partition: its offsets, what it holds, and the partitions that must be read before it."""

    partition: str
    start: int
    end: int
    messages: int
    bytes: int
    segments: int
    follows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StorageSummary:
    """A storage topic: its shape, whether it is sealed or takes the pushes, and what it holds."""

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
class TopicDetail:
    """A topic with all its storage topics, oldest first."""

    name: str
    router: str
    content_type: str
    created: datetime
    produce_pointer: int
    messages: int
    bytes: int
    storage: tuple[StorageSummary, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """The partition that a key's messages go to now."""

    key: str
    partition: str


def check_topic(name: str, *, partitions: int, any_count: bool) -> None:
    """`InvalidName` or `InvalidValue` for a topic that `create_topic` would not create anywhere."""
    check_new_topic(name)
    check_count(partitions, any_count)


def create_topic(
    hub: Hub,
    name: str,
    *,
    partitions: int,
    router: RouterKind,
    kind: ValueKind,
    any_count: bool,
    exist_ok: bool,
) -> TopicSummary:
    """Create a topic; `TopicExists` when the name is taken, or with `exist_ok` by another one."""
    python_type = _PYTHON_TYPES[kind]
    topic = hub.create_topic(
        name,
        python_type,
        partitions=partitions,
        router=router.value,
        any_count=any_count,
        exist_ok=exist_ok,
    )
    return _summary(hub, topic)


def find_topic(hub: Hub, name: str) -> Topic[Any]:
    """Open a topic that is there; `UnknownTopic` when it is not, whatever `auto_create` says."""
    known = hub.topics()
    if check_name("topic", name) not in known:
        raise UnknownTopic(name, hub.backend.name, known)
    return hub.topic(name)


def list_topics(hub: Hub) -> list[TopicSummary]:
    """All topics, by name."""
    found = []
    for name in hub.topics():
        try:
            found.append(_summary(hub, find_topic(hub, name)))
        except UnknownTopic:
            continue  # deleted meanwhile
    return found


def show_topic(hub: Hub, name: str) -> TopicDetail:
    """One topic; `UnknownTopic` when there is none of that name."""
    topic = find_topic(hub, name)
    pointer = topic.produce_pointer
    storage = tuple(_storage(hub, topic, info, pointer) for info in topic.storage_topics)
    definition = topic.view.definition
    return TopicDetail(
        name=name,
        router=definition.router.value,
        content_type=definition.content_type,
        created=datetime.fromtimestamp(definition.created_ms / 1000, UTC),
        produce_pointer=pointer,
        messages=sum(each.messages for each in storage),
        bytes=sum(each.bytes for each in storage),
        storage=storage,
    )


def route_keys(hub: Hub, name: str, keys: tuple[str, ...]) -> list[Route]:
    """Where the messages of each key go now."""
    topic = find_topic(hub, name)
    pointer = topic.produce_pointer
    return [Route(key, str(Partition(name, pointer, topic.route(key)))) for key in keys]


def held_by_topic(hub: Hub, topic: Topic[Any]) -> Held:
    """What all partitions of a topic hold."""
    return total(
        held_in(hub, Partition(topic.name, info.index, number))
        for info in topic.storage_topics
        for number in range(info.partitions)
    )


def _summary(hub: Hub, topic: Topic[Any]) -> TopicSummary:
    definition = topic.view.definition
    held = held_by_topic(hub, topic)
    return TopicSummary(
        name=topic.name,
        partitions=definition.shape.partitions,
        storage_topics=len(definition.storage),
        router=definition.router.value,
        content_type=definition.content_type,
        messages=held.messages,
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
    held = held_in(hub, partition)
    return PartitionSummary(
        partition=str(partition),
        start=info.starts[number],
        end=info.ends[number],
        messages=held.messages,
        bytes=held.bytes,
        segments=held.segments,
        follows=tuple(map(str, sorted(topic.follows(partition)))),
    )
