"""The partitions of a shard in each queue, and the ids of messages in them.

The id of a message is a number: the index of its partition in the queue, and its offset. Storage
topics are added at the end, and a key has one partition in each, so the ids of a key rise with the
age of its messages, the oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tailrace.message import Partition
from tailrace.subscription.layout.assignment import Assignment
from tailrace.subscription.shard.replay_bounds import ReplayBounds
from tailrace.topic.composite import Definition

_OFFSET_BITS: Final = 64
_OFFSET: Final = (1 << _OFFSET_BITS) - 1


@dataclass(frozen=True, slots=True)
class ShardStreams:
    """The partitions of a shard: of the opened storage topics of MQ, and of RQ and DLQ.

    `follows` has for each partition of MQ those of the shard that must be finished before it.
    `rq` and `dlq` end with those that take appends. `ends` has the partitions of MQ that the shard
    reads up to a fixed offset, and those offsets. `deleted` has those of deleted storage topics of
    MQ: messages from there may still be in RQ and DLQ. `resets` has the number of the last offset
    reset of partitions of MQ; 0 for others.
    """

    mq: tuple[Partition, ...]
    rq: tuple[Partition, ...]
    dlq: tuple[Partition, ...]
    follows: dict[Partition, frozenset[Partition]]
    ends: Mapping[Partition, int] = field(default_factory=dict)
    deleted: tuple[Partition, ...] = ()
    resets: Mapping[Partition, int] = field(default_factory=dict)


class QueueIds:
    """The ids of the messages in one queue of a shard."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._partitions = list(partitions)
        self._indexes = {partition: index for index, partition in enumerate(partitions)}

    def add(self, partitions: Sequence[Partition]) -> None:
        """Add the partitions that are new."""
        for partition in partitions:
            if partition not in self._indexes:
                self._indexes[partition] = len(self._partitions)
                self._partitions.append(partition)

    def base(self, partition: Partition) -> int:
        """Return the id of offset 0 of a partition: the id of another offset is the sum."""
        return self._indexes[partition] << _OFFSET_BITS

    def place(self, id: int) -> tuple[Partition, int]:
        """Return the partition and the offset of an id."""
        return self._partitions[id >> _OFFSET_BITS], id & _OFFSET


def streams_of(
    strategy: Assignment,
    shard: int,
    shards: int,
    *,
    main: tuple[str, Definition],
    opened: int,
    rq: tuple[str, Definition],
    dlq: tuple[str, Definition],
    replay: ReplayBounds | None = None,
) -> ShardStreams:
    """Return the partitions of a shard: of the first `opened` storage topics of the main topic, and
    of all of RQ and DLQ. Topics are given by name and definition. Those of a replay have ends."""

    def partitions(
        topic: str, definition: Definition, storages: Iterable[int]
    ) -> tuple[Partition, ...]:
        return tuple(
            Partition(topic, storage, number)
            for storage in storages
            for number in strategy.partitions(shard, shards, definition.storage[storage].partitions)
        )

    topic, definition = main
    mq = partitions(topic, definition, (each for each in definition.storages if each < opened))
    own = set(mq)
    follows = {each: frozenset(definition.follows(each) & own) for each in mq}
    return ShardStreams(
        mq,
        partitions(*rq, rq[1].storages),
        partitions(*dlq, dlq[1].storages),
        follows,
        {} if replay is None else {each: replay.end(each) for each in mq},
        partitions(topic, definition, (each for each in definition.deleted if each < opened)),
    )
