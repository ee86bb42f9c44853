"""Internal topics: the names that Tailrace reserves, and the creation of such topics."""

from __future__ import annotations

import secrets
from typing import Final

from tailrace.backend.contract import Backend
from tailrace.backend.retry import retry_on_conflict
from tailrace.errors import InvalidName, InvalidValue
from tailrace.payload import JSON
from tailrace.reserved_names import (
    COMMIT_LOG_SUFFIX,
    DEAD_LETTER_QUEUE_PREFIX,
    DEAD_LETTERS_SUFFIX,
    INTERNAL_PREFIX,
    RETRY_QUEUE_PREFIX,
    pipeline_of,
)
from tailrace.topic.composite import check_new_name, creation, first_definition
from tailrace.topic.router import RouterKind
from tailrace.topic.view import StoredDefinition, View, find

_QUEUES: Final = (RETRY_QUEUE_PREFIX, DEAD_LETTER_QUEUE_PREFIX)


def is_internal(name: str) -> bool:
    """True if the name is that of an internal topic."""
    return name.startswith(INTERNAL_PREFIX)


def check_new_topic(name: object) -> str:
    """Return the name if a user may create a topic of that name; else `InvalidName`."""
    checked = check_new_name("topic", name)
    if is_internal(checked):
        valid = f"names that do not begin with {INTERNAL_PREFIX!r}, which Tailrace reserves"
        raise InvalidName("topic", name, valid)
    if (pipeline := pipeline_of(checked)) is not None:
        reserved = f"names that do not end in {COMMIT_LOG_SUFFIX} or {DEAD_LETTERS_SUFFIX}"
        creates = f"pipeline {pipeline!r} creates its own topics when it runs"
        valid = f"{reserved}, which are those of pipelines; {creates}: tailrace pipeline run FILE"
        raise InvalidName("topic", name, valid)
    return checked


def is_queue(topic: str) -> bool:
    """True if the name is that of the RQ or DLQ of a subscription."""
    return topic.startswith(_QUEUES)


def check_not_queue(topic: str) -> None:
    """Raise `InvalidValue` if a topic is the RQ or DLQ of a subscription.

    Users may read such a topic. Only the workers of the subscription append to it, and it changes
    with the subscription alone: otherwise a key would have two shards.
    """
    if is_queue(topic):
        name = topic.removeprefix(RETRY_QUEUE_PREFIX).removeprefix(DEAD_LETTER_QUEUE_PREFIX)
        raise InvalidValue(
            "topic",
            topic,
            f"a topic that is not a queue of a subscription; {name!r} manages this one itself",
            f"show it: tailrace subscription show {name}",
        )


def open_internal_topic(backend: Backend, name: str, now_ms: int, partitions: int = 1) -> View:
    """Open an internal topic, or one of a pipeline, of JSON values; create it if it does not exist.

    An existing one may have another number of partitions.
    """

    def attempt() -> StoredDefinition:
        stored = find(backend, name)
        if stored is None:
            definition = first_definition(
                partitions=partitions,
                router=RouterKind.SHARD_CONSISTENT,
                content_type=JSON,
                any_count=False,
                created_ms=now_ms,
                identity=secrets.token_hex(8),
            )
            version = backend.store.commit(creation(name, definition))
            stored = StoredDefinition(definition, version)
        return stored

    # Another process may create it at the same time.
    return View(backend, name, retry_on_conflict(attempt, f"topic {name!r}"))
