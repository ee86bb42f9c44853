"""The registered consumers of a topic, and what they all have acknowledged.

A consumer is registered before it reads, by a store entry ``consumer/TOPIC/CONSUMER``. From then on
no record that it has not acknowledged may be removed from the topic.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tailrace.backend.contract import Backend, Change, Store
from tailrace.errors import Conflict
from tailrace.message import Partition
from tailrace.topic.ledger import Progress

CONSUMERS: Final = "consumer/"


class LowWater(NamedTuple):
    """The consumer with the lowest low-water mark of a partition, and that mark."""

    consumer: str
    mark: int


def register(store: Store, topic: str, consumer: str) -> bool:
    """Register a consumer; returns False if it is registered already."""
    key = consumer_key(topic, consumer)
    try:
        store.commit(Change(expect={key: 0}, writes={key: b""}))
    except Conflict:
        return False
    return True


def unregister(store: Store, topic: str, consumer: str) -> None:
    """Remove a consumer: compaction no longer waits for it."""
    store.commit(Change(writes={consumer_key(topic, consumer): None}))


def consumers(store: Store, topic: str) -> list[str]:
    """Return the consumers of a topic, by name."""
    prefix = consumer_key(topic, "")
    return [entry.key.removeprefix(prefix) for entry in store.scan(prefix)]


def low_water(backend: Backend, partition: Partition) -> LowWater | None:
    """Return the lowest mark of all consumers of a partition; None if there is no consumer, so that
    no record counts as consumed."""
    marks = [
        LowWater(name, Progress.load(backend.table, name, partition).mark)
        for name in consumers(backend.store, partition.topic)
    ]
    return min(marks, key=lambda low: low.mark, default=None)


def low_mark(backend: Backend, partition: Partition) -> int:
    """Return the offset below which all consumers have acknowledged a partition; 0 if there is no
    consumer."""
    low = low_water(backend, partition)
    return 0 if low is None else low.mark


def consumer_key(topic: str, consumer: str) -> str:
    """Return the store key of a registered consumer."""
    return f"{CONSUMERS}{topic}/{consumer}"
