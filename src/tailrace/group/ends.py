"""Where all streams of some topics end now, and how much of that a group has left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.backend.contract import Backend
from tailrace.errors import UnknownTopic
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.view import find


def ends_of(backend: Backend, topics: Iterable[str]) -> dict[Partition, int]:
    """The ends of all partitions that have anything; those of the newest storage topics first.

    So what was pushed before this call lies before one of these ends, also when a topic is scaled
    meanwhile.
    """
    ends: dict[Partition, int] = {}
    for topic in topics:
        stored = find(backend, topic)
        if stored is None:
            continue
        for storage in reversed(list(stored.definition.storage_topics(topic))):
            try:
                all_bounds = backend.log.bounds_of(storage)
            except UnknownTopic:
                continue
            for number, bounds in enumerate(all_bounds):
                if bounds.end > bounds.start:
                    ends[Partition(topic, storage.storage, number)] = bounds.end
    return ends


def unconsumed(
    backend: Backend, consumer: str, ends: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Those of the ends that the ledger has not come to. What is deleted is consumed."""
    left = {}
    for partition, end in ends.items():
        if Progress.load(backend.table, consumer, partition).mark >= end:
            continue
        try:
            backend.log.bounds(partition)
        except UnknownTopic:
            continue
        left[partition] = end
    return left
