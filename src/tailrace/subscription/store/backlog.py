"""What waits in the queues of a subscription, counted for people."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from tailrace.backend.contract import Backend
from tailrace.clock import utc_time
from tailrace.errors import CorruptBatch
from tailrace.group.store.streams import first_unread
from tailrace.message import Partition
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.key_state import HeadMessage, head_message
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.queue_scan import QueuedMessage, message_at
from tailrace.subscription.store.reading import read_lagging
from tailrace.topic.ledger import Progress
from tailrace.topic.record_count import amount_left

BLOCKED_SHOWN: Final = 10
"""The number of blocked keys that a backlog names."""


@dataclass(frozen=True, slots=True)
class BlockedKey:
    """A key that a dead letter blocks: the dead letter, and the number of messages behind it in
    DLQ."""

    key: str
    head: HeadMessage
    behind: int


@dataclass(frozen=True, slots=True)
class ShardBacklog:
    """The numbers of unacknowledged messages of a shard in each queue."""

    mq: int = 0
    rq: int = 0
    dlq: int = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """The unacknowledged messages of a subscription, without those in closed storage topics.

    `oldest` is the time at which the oldest of them was pushed; a dead letter that blocks no key
    does not count. `retrying_keys` are the keys in RQ, and `retrying_since` is the time since when
    the oldest of its messages is there. `blocked_keys` are the keys that a dead letter blocks, with
    `behind` messages behind those dead letters; `blocked` names some, the oldest first. `aside` is
    the number of dead letters that block no key. The numbers are of a short time, not of one
    instant: messages that move meanwhile are counted once, twice or not at all.
    """

    shards: tuple[ShardBacklog, ...] = ()
    oldest: datetime | None = None
    retrying_keys: int = 0
    retrying_since: datetime | None = None
    blocked_keys: int = 0
    behind: int = 0
    blocked: tuple[BlockedKey, ...] = ()
    aside: int = 0

    @property
    def mq(self) -> int:
        """The number of unacknowledged messages of the topic."""
        return sum(shard.mq for shard in self.shards)

    @property
    def rq(self) -> int:
        """The number of messages in RQ."""
        return sum(shard.rq for shard in self.shards)

    @property
    def dlq(self) -> int:
        """The number of messages in DLQ."""
        return sum(shard.dlq for shard in self.shards)


NO_BACKLOG: Final = Backlog()


class _Lag(NamedTuple):
    """The messages of a key in a queue: the first one, and their number."""

    partition: Partition
    offset: int
    messages: int


def read_backlog(backend: Backend, stored: StoredSubscription) -> Backlog:
    """Count what waits. Reads the keys of all messages in RQ, and in DLQ if they block keys."""
    shards = [stored.streams(shard) for shard in range(stored.definition.shards)]
    partitions = [where for each in shards for where in (*each.mq, *each.rq, *each.dlq)]
    ledgers = read_ledgers(backend, stored, partitions)
    blocks = stored.definition.policy is OnDeadLetter.BLOCK
    waiting = (where for each in shards for where in each.rq)
    retrying = _keys(backend, stored.name, ledgers, waiting)
    dead = (where for each in shards for where in each.dlq)
    lagging = _keys(backend, stored.name, ledgers, dead) if blocks else {}
    blocked = {key: lag for key, lag in lagging.items() if key}
    counts = tuple(_counts(backend, ledgers, each) for each in shards)
    keyless = lagging[b""].messages if b"" in lagging else 0
    return Backlog(
        counts,
        _oldest(backend, ledgers, shards, blocks),
        len(retrying.keys() - {b""}),
        _queued_since(backend, ledgers, (where for each in shards for where in each.rq)),
        len(blocked),
        sum(each.messages - 1 for each in blocked.values()),
        tuple(_named(backend, stored, blocked)),
        keyless if blocks else sum(shard.dlq for shard in counts),
    )


def count_backlog(backend: Backend, stored: StoredSubscription) -> Backlog:
    """Count what waits in each queue, and find the oldest message. Reads no keys, so it takes about
    the same time however much waits."""
    shards = [stored.streams(shard) for shard in range(stored.definition.shards)]
    partitions = [where for each in shards for where in (*each.mq, *each.rq, *each.dlq)]
    ledgers = read_ledgers(backend, stored, partitions)
    blocks = stored.definition.policy is OnDeadLetter.BLOCK
    counts = tuple(_counts(backend, ledgers, each) for each in shards)
    return Backlog(counts, _oldest(backend, ledgers, shards, blocks))


def count_unacknowledged(
    backend: Backend, ledgers: Mapping[Partition, Progress], partitions: Iterable[Partition]
) -> int:
    """Return the number of unacknowledged records of partitions."""
    return sum(amount_left(backend.log, each, ledgers[each]).records for each in partitions)


def _counts(
    backend: Backend, ledgers: Mapping[Partition, Progress], streams: ShardStreams
) -> ShardBacklog:
    counts = (
        count_unacknowledged(backend, ledgers, partitions)
        for partitions in (streams.mq, streams.rq, streams.dlq)
    )
    return ShardBacklog(*counts)


def _keys(
    backend: Backend,
    name: str,
    ledgers: Mapping[Partition, Progress],
    partitions: Iterable[Partition],
) -> dict[bytes, _Lag]:
    """Return the keys that lag in partitions of RQ or DLQ, which are the oldest first. Messages
    without a key are those of the empty key."""
    found: dict[bytes, _Lag] = {}
    consumer = worker_group(name)
    for partition in partitions:
        try:
            for key, offsets in read_lagging(backend, consumer, partition, ledgers[partition]):
                before = found.get(key or b"", _Lag(partition, offsets[0], 0))
                found[key or b""] = before._replace(messages=before.messages + len(offsets))
        except CorruptBatch:
            continue  # those before the damage are counted
    return found


def _named(
    backend: Backend, stored: StoredSubscription, blocked: Mapping[bytes, _Lag]
) -> Iterator[BlockedKey]:
    """Yield some of the blocked keys, the oldest dead letters first."""
    by_partition: dict[Partition, list[tuple[int, bytes]]] = {}
    for key, (partition, offset, _) in blocked.items():
        by_partition.setdefault(partition, []).append((offset, key))
    candidates: list[tuple[QueuedMessage, bytes]] = []
    for partition, heads in by_partition.items():
        for offset, key in heapq.nsmallest(BLOCKED_SHOWN, heads):
            candidates.append((message_at(backend, Queue.DLQ, partition, offset), key))
    candidates.sort(key=lambda each: (each[0].record.timestamp, each[0].position))
    for message, key in candidates[:BLOCKED_SHOWN]:
        shown = key.decode("utf-8", "backslashreplace")
        yield BlockedKey(shown, head_message(backend, stored, message), blocked[key].messages - 1)


def _oldest(
    backend: Backend,
    ledgers: Mapping[Partition, Progress],
    shards: Iterable[ShardStreams],
    blocks: bool,
) -> datetime | None:
    times = []
    for streams in shards:
        queues = {Queue.MQ: streams.mq, Queue.RQ: streams.rq}
        if blocks:
            queues[Queue.DLQ] = streams.dlq
        for queue, partitions in queues.items():
            times += [each.pushed_ms for each in _first(backend, ledgers, queue, partitions)]
    return utc_time(min(times)) if times else None


def _queued_since(
    backend: Backend, ledgers: Mapping[Partition, Progress], partitions: Iterable[Partition]
) -> datetime | None:
    """Return since when the oldest message of RQ is there."""
    first = _first(backend, ledgers, Queue.RQ, partitions)
    times = [message.record.timestamp for message in first]
    return utc_time(min(times)) if times else None


def _first(
    backend: Backend,
    ledgers: Mapping[Partition, Progress],
    queue: Queue,
    partitions: Iterable[Partition],
) -> Iterator[QueuedMessage]:
    """Yield the first unacknowledged message of each partition of a queue."""
    for where in partitions:
        try:
            offset = first_unread(backend.log, where, ledgers[where], backend.log.bounds(where))
            if offset is not None:
                yield message_at(backend, queue, where, offset)
        except (CorruptBatch, LookupError):  # damaged, or removed meanwhile
            continue
