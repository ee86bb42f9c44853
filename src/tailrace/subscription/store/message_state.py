"""The state of one message in a subscription: in which queue it is now, or that it is acknowledged.

Derived from the stored queues and ledgers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.backend.contract import Backend
from tailrace.delivery.dead_letters.letter import POSITION
from tailrace.errors import InvalidValue
from tailrace.message import Partition, Position
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.generations.opening import as_opened
from tailrace.subscription.store.key_state import HeadMessage, head_message
from tailrace.subscription.store.names import dead_letter_queue, retry_queue, worker_group
from tailrace.subscription.store.queue_scan import (
    QueuedMessage,
    key_places,
    message_at,
    queued_message,
    rows_of_key,
    unacknowledged,
)
from tailrace.topic.ledger import Progress


class Found(NamedTuple):
    """A message in a queue, and the number of those of its key that are before it there."""

    message: QueuedMessage
    ahead: int


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message of a subscription is.

    `message` has its queue and its attempts. It is None for an acknowledged message: a handler
    succeeded, the filter did not match, an operator discarded it, or it is older than the start of
    the subscription. `ahead` is the number of messages of its key before it in that queue. `closed`
    is True if its storage topic is not open to the subscription.
    """

    subscription: str
    origin: str
    key: str | None
    shard: int
    message: HeadMessage | None
    ahead: int = 0
    closed: bool = False


def read_message_place(
    backend: Backend, stored: StoredSubscription, position: Position
) -> MessagePlace:
    """Return where a message is, by its position in the topic, in RQ or in DLQ.

    Raises `InvalidValue` for a position in another topic, and `OutOfRange` if there is no record.
    """
    stored = as_opened(stored)
    found = _read(backend, stored, position)
    origin, key = found.origin, found.record.key or None
    shard = _shard(stored, origin.partition)
    shown = None if key is None else key.decode("utf-8", "backslashreplace")
    if origin.partition.storage >= stored.definition.opened:
        head = head_message(backend, stored, found)
        return MessagePlace(stored.name, str(origin), shown, shard, head, closed=True)
    waiting = _waiting(backend, stored, found, shard)
    if waiting is None:
        return MessagePlace(stored.name, str(origin), shown, shard, None)
    message, ahead = waiting
    head = head_message(backend, stored, message)
    return MessagePlace(stored.name, str(message.origin), shown, shard, head, ahead)


def _read(backend: Backend, stored: StoredSubscription, position: Position) -> QueuedMessage:
    topics = {
        stored.definition.topic: (Queue.MQ, stored.main),
        retry_queue(stored.name): (Queue.RQ, stored.rq),
        dead_letter_queue(stored.name): (Queue.DLQ, stored.dlq),
    }
    if position.topic not in topics:
        valid = f"a position in {', '.join(topics)}"
        raise InvalidValue(f"position for subscription {stored.name!r}", str(position), valid)
    queue, (definition, _) = topics[position.topic]
    partition = definition.check_held(Partition(*position[:3]), position.offset)
    return message_at(backend, queue, partition, position.offset)


def _shard(stored: StoredSubscription, partition: Partition) -> int:
    definition = stored.definition
    count = stored.main.definition.storage[partition.storage].partitions
    return definition.strategy.owner(partition.number, definition.shards, count)


def _waiting(
    backend: Backend, stored: StoredSubscription, message: QueuedMessage, shard: int
) -> Found | None:
    """Return the message in the queue that holds it; None if no queue does."""
    origin, key = message.origin, message.record.key or None
    progress = Progress.load(backend.table, worker_group(stored.name), origin.partition)
    streams = stored.streams(shard)
    partitions = {Queue.MQ: streams.mq, Queue.RQ: streams.rq, Queue.DLQ: streams.dlq}
    if key is not None:
        partitions = {queue: key_places(stored, key).of(queue) for queue in partitions}
    queues = (Queue.RQ, Queue.DLQ) if progress.acked(origin.offset) else (Queue.MQ,)
    for queue in queues:
        found = _find(backend, stored, queue, partitions[queue], key, origin)
        if found is not None:
            return found
    return None


def _find(
    backend: Backend,
    stored: StoredSubscription,
    queue: Queue,
    partitions: Iterable[Partition],
    key: bytes | None,
    origin: Origin,
) -> Found | None:
    ahead = 0
    for partition in partitions:
        if queue is Queue.MQ and key is None and partition != origin.partition:
            continue
        for batch in unacknowledged(backend, stored, partition):
            rows = rows_of_key(batch, key)
            at = _row(queue, partition, rows, origin)
            if at >= 0:
                before = 0 if key is None else ahead + at
                return Found(queued_message(queue, partition, rows, at), before)
            ahead += rows.num_rows
    return None


def _row(queue: Queue, partition: Partition, rows: pa.RecordBatch, origin: Origin) -> int:
    """Return the row of a message; -1 if it is not among them."""
    if queue is not Queue.MQ:
        text = f"{origin.partition}@{origin.offset}".encode()
        positions = pc.map_lookup(
            rows["headers"], query_key=pa.scalar(POSITION), occurrence="first"
        )
        return int(pc.index(positions, pa.scalar(text)).as_py())
    if partition != origin.partition:
        return -1
    return int(pc.index(rows["offset"], pa.scalar(origin.offset)).as_py())
