"""The number of the last offset reset of each partition of MQ.

Everything that is read from a partition carries its number: origins, headers of RQ and DLQ,
attempts, effects and the ids of deliveries. So a message that is read again after a reset is
another one to all of them.

A reset gives its number to the partitions that it moves and to those that follow them, so the
numbers of a key's messages never fall. The definition has the last number. The table
``subscription-reset-numbers/NAME`` has an entry, ``orders/1.7``, for each partition with an earlier
one. Its entry ``applied`` is the last reset, of any queue, whose marks are written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tailrace.backend.contract import Backend, TableKey
from tailrace.message import Partition
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.store.definition import StoredSubscription

_APPLIED: Final = b"applied"


def numbers_table(subscription: str) -> str:
    """Return the name of a subscription's table."""
    return f"subscription-reset-numbers/{subscription}"


def number_key(subscription: str, partition: Partition) -> TableKey:
    """Return the key of a partition's entry."""
    return TableKey(numbers_table(subscription), str(partition).encode())


def applied_key(subscription: str) -> TableKey:
    """Return the key of the last reset whose marks are written."""
    return TableKey(numbers_table(subscription), _APPLIED)


def encode_number(number: int) -> bytes:
    """Return the value to store."""
    return str(number).encode()


def read_reset_number(backend: Backend, key: TableKey) -> int | None:
    """Return the number of an entry; None if there is none."""
    value = backend.table.get(*key)
    return None if value is None else int(value)


def reset_number_of(backend: Backend, stored: StoredSubscription, partition: Partition) -> int:
    """Return the number of the last reset of a partition of MQ."""
    last = stored.definition.reset
    kept = read_reset_number(backend, number_key(stored.name, partition)) if last else None
    return last if kept is None else kept


def with_reset_numbers(
    backend: Backend, stored: StoredSubscription, streams: ShardStreams
) -> ShardStreams:
    """Return the partitions of a shard with the numbers of their last resets."""
    return replace(
        streams, resets={each: reset_number_of(backend, stored, each) for each in streams.mq}
    )
