"""Finding topics by name."""

from __future__ import annotations

from typing import Any

from tailrace.errors import UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.topic.composite import check_name


def find_topic(hub: Hub, name: str) -> Topic[Any]:
    """Return an existing topic. Raise `UnknownTopic` if there is none, even with `auto_create`."""
    known = hub.topics()
    if check_name("topic", name) not in known:
        raise UnknownTopic(name, hub.backend.name, known)
    return hub.topic(name)
