"""The splits of a topic: its partitions, each after those that it follows.

The splits of the oldest storage topic exist from the start. A split whose partition is sealed and
read to its end reports all partitions of the next storage topic that follow it. A partition that
follows several is reported by each of them, and starts when all of them are finished.

The `data` of a split are the `identity` of its topic, which a topic of the same name that is
created later does not have, and the offset at which reading starts, `start`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.backend.contract import Bounds, Log
from tailrace.errors import Error
from tailrace.message import Partition
from tailrace.source.reader import Split
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Stream, follows

FROM_ITS_START: Final = "to read the topic from its start again, run a pipeline of another name"
"""What helps a source that has lost messages."""


def first_splits(
    topic: str, definition: Definition, held: Mapping[Stream, Bounds], namespace: str
) -> list[Split]:
    """Return the partitions of the oldest storage topic, given the bounds of all that exist."""
    oldest = min(storage for storage, _ in held)
    return [
        _split(Partition(topic, *stream), bounds.start, (), definition, namespace)
        for stream, bounds in held.items()
        if stream[0] == oldest
    ]


def next_splits(
    log: Log, partition: Partition, definition: Definition, namespace: str
) -> tuple[Split, ...]:
    """Return the partitions of the next storage topic that follow this one; none if the definition
    does not have it yet."""
    topic, storage = partition.topic, partition.storage + 1
    if storage > definition.pointer:
        return ()
    found = []
    if storage in definition.deleted:
        lost = definition.storage_topic(topic, storage)
        raise Error(
            f"storage {lost.storage} of topic {topic!r} was deleted before it was read",
            FROM_ITS_START,
        )
    for number, bounds in enumerate(log.bounds_of(definition.storage_topic(topic, storage))):
        parents = follows(
            definition.router, definition.storage[storage - 1], definition.storage[storage], number
        )
        if partition.number in parents:
            before = tuple(str(Partition(topic, storage - 1, each)) for each in sorted(parents))
            child = Partition(topic, storage, number)
            found.append(_split(child, bounds.start, before, definition, namespace))
    return tuple(found)


def _split(
    partition: Partition,
    start: int,
    parents: tuple[str, ...],
    definition: Definition,
    namespace: str,
) -> Split:
    data: dict[str, Any] = {"identity": definition.identity, "start": start}
    return Split(str(partition), data, parents, namespace=namespace)
