"""Topics that Tailrace keeps for itself: their names, and how they come to be."""

from __future__ import annotations

import contextlib
import secrets
from typing import Final

from tailrace.backend.contract import Backend
from tailrace.errors import Conflict, InvalidName, UnknownTopic
from tailrace.payload import JSON
from tailrace.topic.composite import check_new_name, creation, first_definition
from tailrace.topic.router import RouterKind
from tailrace.topic.view import View, find

OWN: Final = "tailrace."
"""What the names of these topics begin with. No pattern of a group matches them."""


def check_new_topic(name: object) -> str:
    """The name, if a user may give it to a new topic; otherwise `InvalidName`."""
    checked = check_new_name("topic", name)
    if checked.startswith(OWN):
        valid = f"names that do not begin with {OWN!r}: Tailrace keeps those for itself"
        raise InvalidName("topic", name, valid)
    return checked


def own_topic(backend: Backend, name: str, now_ms: int) -> View:
    """A topic of JSON in one partition, made if it is not there."""
    stored = find(backend, name)
    if stored is None:
        definition = first_definition(
            partitions=1,
            router=RouterKind.SHARD_CONSISTENT,
            content_type=JSON,
            any_count=False,
            created_ms=now_ms,
            identity=secrets.token_hex(8),
        )
        with contextlib.suppress(Conflict):  # when somebody else makes it
            backend.store.commit(creation(name, definition))
        stored = find(backend, name)
        if stored is None:
            raise UnknownTopic(name, backend.name)
    return View(backend, name, stored)
