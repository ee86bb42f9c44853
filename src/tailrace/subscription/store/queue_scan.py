"""The unacknowledged messages of a key, found in the stored queues. For people: nothing is decided
by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.backend.contract import Backend
from tailrace.delivery.dead_letters.addressing import addressed_to
from tailrace.delivery.dead_letters.letter import TIMESTAMP
from tailrace.errors import CorruptBatch, InvalidValue
from tailrace.log.columns import records_of
from tailrace.log.control import without_control
from tailrace.log.record import Record
from tailrace.message import Partition
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.moved_record import origin_in
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.ledgers import read_ledger
from tailrace.subscription.store.names import dead_letter_queue, retry_queue, worker_group
from tailrace.topic.composite import Definition
from tailrace.topic.reading import batches_within, record_at
from tailrace.topic.router import hash_key, route

MAIN_RECORDS_MAX: Final = 500_000
"""The number of unacknowledged records of MQ that are searched for those of a key. RQ and DLQ are
searched to their ends: what they hold decides the state of a key."""


class KeyPlaces(NamedTuple):
    """The shard of a key, and its partitions in each queue, the oldest storage topic first.

    `closed` are those in the storage topics of MQ that the subscription has not opened.
    """

    shard: int
    mq: tuple[Partition, ...]
    rq: tuple[Partition, ...]
    dlq: tuple[Partition, ...]
    closed: tuple[Partition, ...]

    def of(self, queue: Queue) -> tuple[Partition, ...]:
        """Return the partitions in a queue."""
        return {Queue.MQ: self.mq, Queue.RQ: self.rq, Queue.DLQ: self.dlq}[queue]


class QueuedMessage(NamedTuple):
    """A message in a queue: its record and where that is, and its origin in MQ."""

    queue: Queue
    partition: Partition
    record: Record
    origin: Origin

    @property
    def position(self) -> str:
        """The position of the record."""
        return f"{self.partition}@{self.record.offset}"

    @property
    def pushed_ms(self) -> int:
        """The timestamp of the message in MQ."""
        if self.queue is Queue.MQ:
            return self.record.timestamp
        return int((self.record.headers or {}).get(TIMESTAMP, self.record.timestamp))


@dataclass(frozen=True, slots=True)
class QueuedKey:
    """The unacknowledged messages of a key in a queue: their number, the first and the last.

    With `complete` False, MQ holds more records than are searched: there may be more.
    """

    count: int = 0
    head: QueuedMessage | None = None
    last: QueuedMessage | None = None
    complete: bool = True


def key_bytes(key: str | bytes) -> bytes:
    """Return the bytes of a key; `InvalidValue` for an empty one, whose messages follow no
    other."""
    found = key.encode() if isinstance(key, str) else key
    if not isinstance(found, bytes) or not found:
        valid = "text or bytes, not empty; a message without a key holds back no other"
        raise InvalidValue("key", key, valid)
    return found


def key_places(stored: StoredSubscription, key: bytes) -> KeyPlaces:
    """Return where the messages of a key are."""
    definition, main = stored.definition, stored.main.definition
    hashed = hash_key(key)

    def places(topic: str, of: Definition, storages: Iterable[int]) -> tuple[Partition, ...]:
        held = (storage for storage in storages if storage not in of.deleted)
        shapes = ((storage, of.storage[storage]) for storage in held)
        return tuple(
            Partition(topic, storage, route(of.router, hashed, shape.partitions, shape.k))
            for storage, shape in shapes
        )

    rq, dlq = stored.rq.definition, stored.dlq.definition
    mq = places(definition.topic, main, range(definition.opened))
    newest = main.storage[definition.opened - 1].partitions
    return KeyPlaces(
        definition.strategy.owner(mq[-1].number, definition.shards, newest),
        mq,
        places(retry_queue(stored.name), rq, range(len(rq.storage))),
        places(dead_letter_queue(stored.name), dlq, range(len(dlq.storage))),
        places(definition.topic, main, range(definition.opened, main.pointer + 1)),
    )


def find_key(
    backend: Backend,
    stored: StoredSubscription,
    queue: Queue,
    partitions: Iterable[Partition],
    key: bytes,
) -> QueuedKey:
    """Return the unacknowledged messages of a key in its partitions of a queue, oldest first."""
    count, searched = 0, 0
    head = last = None
    for partition in partitions:
        for batch in unacknowledged(backend, stored, partition):
            if queue is Queue.MQ and searched >= MAIN_RECORDS_MAX:
                return QueuedKey(count, head, last, complete=False)
            searched += batch.num_rows
            rows = rows_of_key(batch, key)
            if rows.num_rows:
                count += rows.num_rows
                head = head or queued_message(queue, partition, rows, 0)
                last = queued_message(queue, partition, rows, rows.num_rows - 1)
    return QueuedKey(count, head, last)


def unacknowledged(
    backend: Backend, stored: StoredSubscription, partition: Partition
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition that a subscription has not acknowledged, in order.

    Ends at damaged records.
    """
    consumer = worker_group(stored.name)
    progress = read_ledger(backend, stored, partition)
    bounds = backend.log.bounds(partition)
    try:
        for first, after in progress.holes(bounds.end):
            start = max(first, bounds.start)
            for records in batches_within(backend.log, partition, start, after):
                yield without_control(addressed_to(records, consumer))
    except CorruptBatch:
        return


def rows_of_key(records: pa.RecordBatch, key: bytes | None) -> pa.RecordBatch:
    """Return the records of a key; for None, those without a key."""
    keys: Any = pc.fill_null(records["key"], pa.scalar(b""))
    mask: Any = pc.equal(keys, pa.scalar(key or b""))
    return records.filter(mask)


def queued_message(
    queue: Queue, partition: Partition, records: pa.RecordBatch, row: int
) -> QueuedMessage:
    """Return a row of the records of a queue."""
    return queued_record(queue, partition, records_of(records.slice(row, 1))[0])


def message_at(backend: Backend, queue: Queue, partition: Partition, offset: int) -> QueuedMessage:
    """Return the message at an offset of a queue. Raises `OutOfRange`."""
    return queued_record(queue, partition, record_at(backend.log, partition, offset))


def queued_record(queue: Queue, partition: Partition, record: Record) -> QueuedMessage:
    """Return a record of a queue as a message."""
    if queue is Queue.MQ:
        return QueuedMessage(queue, partition, record, Origin(partition, record.offset))
    return QueuedMessage(queue, partition, record, origin_in(record.headers or {}))
