"""The messages of a subscription that wait in its retry queue, and its dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from tailrace.backend.contract import Backend
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.fetched import FetchedBatch
from tailrace.errors import DecodeError
from tailrace.subscription.shard.payloads import RecordRow
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.key_state import head_message
from tailrace.subscription.store.queue_scan import queued_message, unacknowledged
from tailrace.subscription.worker.shard_io import Decode
from tailrace.subscription.worker.turn_delivery import delivery_of
from tailrace.testing.apps.delivered import HeldMessage


def held_messages(
    backend: Backend, stored: StoredSubscription, queue: Queue, decode: Decode
) -> list[HeldMessage]:
    """Return the messages in RQ or DLQ, in the order in which they came there."""
    found = sorted(_held(backend, stored, queue, decode), key=itemgetter(0))
    return [message for _, message in found]


def value_of(delivery: Delivery[Any]) -> Any:
    """Return the value of a delivery; None if it cannot be decoded."""
    try:
        return delivery.value
    except DecodeError:
        return None


def _held(
    backend: Backend, stored: StoredSubscription, queue: Queue, decode: Decode
) -> Iterator[tuple[tuple[Any, ...], HeldMessage]]:
    """Yield the messages, each with when it came and where it is."""
    for shard in range(stored.definition.shards):
        streams = stored.streams(shard)
        for partition in streams.rq if queue is Queue.RQ else streams.dlq:
            for records in unacknowledged(backend, stored, partition):
                batch = FetchedBatch(partition, 0, 0, records)
                batch.decode = decode
                for row in range(len(batch)):
                    message = queued_message(queue, partition, records, row)
                    head = head_message(backend, stored, message)
                    turn = Turn(queue, 0, 0, RecordRow(batch, row), message.origin)
                    delivery = delivery_of(turn)
                    yield (
                        (head.queued, partition, message.record.offset),
                        HeldMessage(
                            delivery.id,
                            delivery.key,
                            value_of(delivery),
                            dict(delivery.headers),
                            head.attempts,
                            head.error,
                            head.due,
                        ),
                    )
