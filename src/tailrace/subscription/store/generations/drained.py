"""Older storage topics of RQ and DLQ that hold nothing more. They are deleted.

The commit expects the definition as it was read, so the generation whose ledgers say so. A message
is never appended to an older storage topic, which is sealed, so what is empty stays empty.
"""

from __future__ import annotations

from tailrace.backend.contract import Backend, Change
from tailrace.errors import UnknownTopic
from tailrace.subscription.store.definition import StoredSubscription, joined
from tailrace.subscription.store.generations.progress import unacknowledged_in
from tailrace.subscription.store.names import (
    SUBSCRIPTIONS,
    dead_letter_queue,
    requests_prefix,
    retry_queue,
)
from tailrace.topic.composite import Definition, DeletedPartition, change_between
from tailrace.topic.trimming import to_delete


def deletion_of_drained(backend: Backend, stored: StoredSubscription) -> Change | None:
    """Return the change that deletes older storage topics of RQ and DLQ without unacknowledged
    messages; None if there are none.

    While requests on dead letters are pending, those of DLQ stay: their audit names the messages.
    """
    queues = [(retry_queue(stored.name), stored.rq)]
    if not backend.store.scan(requests_prefix(stored.name)):
        queues.append((dead_letter_queue(stored.name), stored.dlq))
    changes: list[Change] = []
    for topic, (definition, version) in queues:
        if storages := drained_storage(backend, stored, topic, definition):
            after = definition.without(_counted(backend, topic, definition, storages))
            if after != definition:
                changes.append(change_between(topic, definition, after, version))
    if not changes:
        return None
    return joined(Change({SUBSCRIPTIONS + stored.name: stored.version}), *changes)


def drained_storage(
    backend: Backend, stored: StoredSubscription, topic: str, definition: Definition
) -> list[int]:
    """Return the storage topics of RQ or DLQ that take no appends and hold nothing."""
    older = (each for each in definition.storages if each < definition.pointer)
    try:
        return [
            each
            for each in older
            if not unacknowledged_in(backend, stored, topic, definition, each)
        ]
    except UnknownTopic:
        return []  # another process was faster


def _counted(
    backend: Backend, topic: str, definition: Definition, storages: list[int]
) -> dict[int, tuple[DeletedPartition, ...]]:
    """Return what is kept of storage topics that are deleted; nothing if they are gone already."""
    try:
        return to_delete(backend.log, topic, definition, storages)
    except UnknownTopic:
        return {}
