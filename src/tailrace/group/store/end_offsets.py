"""The present end offsets of topics, and those that a group has not reached."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from tailrace.backend.contract import Backend
from tailrace.errors import UnknownTopic
from tailrace.group.store.definition import consumer_name
from tailrace.group.store.seek_steps import find_seek
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.open_streams import held_storage_topics
from tailrace.topic.view import find


def end_offsets(backend: Backend, topics: Iterable[str]) -> dict[Partition, int]:
    """Return the end offsets of all partitions with records, the newest storage topics first.

    That order ensures that every message pushed before this call lies before one of these ends,
    even if a topic is scaled meanwhile.
    """
    ends: dict[Partition, int] = {}
    for topic in topics:
        stored = find(backend, topic)
        if stored is None:
            continue
        held = held_storage_topics(backend.log, topic, stored.definition)
        with contextlib.suppress(UnknownTopic):  # deleted meanwhile
            for storage, all_bounds in held:
                for number, bounds in enumerate(all_bounds):
                    if bounds.end > bounds.start:
                        ends[Partition(topic, storage.storage, number)] = bounds.end
    return ends


def unreached(backend: Backend, group: str, ends: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the end offsets that the group has not reached. Ignores deleted partitions.

    If a topic was deleted and created again, the ledger is that of the deleted topic until the
    group has started in the new one: no offset of the new topic is reached before.
    """
    consumer = consumer_name(group)
    topics = {partition.topic for partition in ends}
    started = {topic for topic in topics if not _is_of_deleted(backend, group, topic)}
    left = {}
    for partition, end in ends.items():
        reached = Progress.load(backend.table, consumer, partition).mark >= end
        if reached and partition.topic in started:
            continue
        try:
            backend.log.bounds(partition)
        except UnknownTopic:
            continue
        left[partition] = end
    return left


def _is_of_deleted(backend: Backend, group: str, topic: str) -> bool:
    """True if the group's ledger is that of a deleted topic of the same name."""
    stored, seek = find(backend, topic), find_seek(backend, group, topic)
    return stored is not None and seek is not None and seek.seek.topic != stored.definition.identity
