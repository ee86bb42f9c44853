"""Who consumes a topic with a ledger, and what they all have acknowledged.

A consumer is registered before it reads, by a store entry ``consumer/TOPIC/CONSUMER``. From then on
nothing that it has not acknowledged may be removed from the topic.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tailrace.backend.contract import Backend, Change, Store
from tailrace.errors import Conflict
from tailrace.message import Partition
from tailrace.topic.ledger import Progress

CONSUMERS: Final = "consumer/"


class LowWater(NamedTuple):
    """The consumer that has acknowledged least of a partition, and up to where."""

    consumer: str
    mark: int


def register(store: Store, topic: str, consumer: str) -> bool:
    """Count a consumer in; False when it was already."""
    key = consumer_key(topic, consumer)
    try:
        store.commit(Change(expect={key: 0}, writes={key: b""}))
    except Conflict:
        return False
    return True


def forget(store: Store, topic: str, consumer: str) -> None:
    """Count a consumer out: what it has not acknowledged no longer matters."""
    store.commit(Change(writes={consumer_key(topic, consumer): None}))


def consumers(store: Store, topic: str) -> list[str]:
    """The consumers of a topic, by name."""
    prefix = consumer_key(topic, "")
    return [entry.key.removeprefix(prefix) for entry in store.scan(prefix)]


def low_water(backend: Backend, partition: Partition) -> LowWater | None:
    """What all consumers of a partition have acknowledged; None when there is no consumer, and so
    nothing counts as consumed."""
    marks = [
        LowWater(name, Progress.load(backend.table, name, partition).mark)
        for name in consumers(backend.store, partition.topic)
    ]
    return min(marks, key=lambda low: low.mark, default=None)


def low_mark(backend: Backend, partition: Partition) -> int:
    """Up to where all consumers of a partition have acknowledged it; 0 when there is none."""
    low = low_water(backend, partition)
    return 0 if low is None else low.mark


def consumer_key(topic: str, consumer: str) -> str:
    """The store entry that counts a consumer in."""
    return f"{CONSUMERS}{topic}/{consumer}"
