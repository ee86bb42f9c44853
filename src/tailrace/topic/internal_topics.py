"""Internal topics: the names that Tailrace reserves, and the creation of such topics."""

from __future__ import annotations

import contextlib
import secrets

from tailrace.backend.contract import Backend
from tailrace.errors import Conflict, InvalidName, UnknownTopic
from tailrace.payload import JSON
from tailrace.reserved_names import (
    COMMIT_LOG_SUFFIX,
    DEAD_LETTERS_SUFFIX,
    INTERNAL_PREFIX,
    pipeline_of,
)
from tailrace.topic.composite import check_new_name, creation, first_definition
from tailrace.topic.router import RouterKind
from tailrace.topic.view import View, find


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


def open_internal_topic(backend: Backend, name: str, now_ms: int, partitions: int = 1) -> View:
    """Open an internal topic, or one of a pipeline, of JSON values; create it if it does not exist.

    An existing one may have another number of partitions.
    """
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
        with contextlib.suppress(Conflict):  # Another process creates it at the same time.
            backend.store.commit(creation(name, definition))
        stored = find(backend, name)
        if stored is None:
            raise UnknownTopic(name, backend.name)
    return View(backend, name, stored)
