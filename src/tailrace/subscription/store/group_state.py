"""The group state of a key: its newest and its last consumed message in RQ and DLQ.

A *group* is what the founding design calls the messages of one key. Its state is derived from the
queues, so a key that lags in no queue has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from tailrace.backend.contract import Backend
from tailrace.errors import CorruptBatch
from tailrace.message import Partition
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.ledgers import read_ledger
from tailrace.subscription.store.queue_scan import (
    QueuedMessage,
    find_key,
    key_bytes,
    key_places,
    queued_message,
    rows_of_key,
)
from tailrace.topic.reading import batches_within

LOOKBACK: Final = 10_000
"""The number of offsets of a partition, before the first message that is not acknowledged, that are
searched for the last consumed one."""


class MessageState(NamedTuple):
    """A message in RQ or DLQ: the storage topic and offset that it has in MQ, and those that it has
    in the queue."""

    main_index: int
    main_offset: int
    internal_index: int
    internal_offset: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """A key that lags in a queue.

    `p` is its newest message there. `c` is the last consumed one; None if none was consumed, or
    only long ago.
    """

    p: MessageState
    c: MessageState | None


@dataclass(frozen=True, slots=True)
class GroupStates:
    """The state of a key in RQ and in DLQ; None where it does not lag."""

    rq: QueueState | None
    dlq: QueueState | None


def read_group_state(backend: Backend, stored: StoredSubscription, key: str | bytes) -> GroupStates:
    """Return the group state of a key. `InvalidValue` for an empty key."""
    wanted = key_bytes(key)
    places = key_places(stored, wanted)

    def state(queue: Queue) -> QueueState | None:
        found = find_key(backend, stored, queue, places.of(queue), wanted)
        if found.head is None or found.last is None:
            return None
        consumed = _consumed(backend, stored, found.head, wanted)
        return QueueState(_state(found.last), None if consumed is None else _state(consumed))

    return GroupStates(state(Queue.RQ), state(Queue.DLQ))


def _consumed(
    backend: Backend, stored: StoredSubscription, head: QueuedMessage, key: bytes
) -> QueuedMessage | None:
    """Return the last message of a key before its head, in the same partition."""
    end = head.record.offset
    start = max(backend.log.bounds(head.partition).start, end - LOOKBACK)
    progress = read_ledger(backend, stored, head.partition)
    newest = None
    for batch in _of_key(backend, head.partition, start, end, key):
        for row, offset in enumerate(batch["offset"].to_numpy()):
            if progress.acked(int(offset)):
                newest = queued_message(head.queue, head.partition, batch, row)
    return newest


def _of_key(
    backend: Backend, partition: Partition, start: int, end: int, key: bytes
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches_within(backend.log, partition, start, end):
            yield rows_of_key(batch, key)
    except CorruptBatch:
        return


def _state(message: QueuedMessage) -> MessageState:
    origin = message.origin
    return MessageState(
        origin.partition.storage, origin.offset, message.partition.storage, message.record.offset
    )
