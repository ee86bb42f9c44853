"""What the tests push, and how they look at what a topic holds."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.topic.topic import Topic


class Order(msgspec.Struct):
    """A value with a type."""

    id: int
    customer: str = "c"


def all_values(topic: Topic[Any]) -> list[Any]:
    """Every value of a topic, in lineage order."""
    reader = topic.reader()
    found = []
    while reads := reader.poll():
        for partition, records in reads:
            found += [message.value for message in topic.messages(partition, records)]
    return found


def nothing_stored(topic: Topic[Any]) -> bool:
    """Whether no partition has a record."""
    return all(end == 0 for info in topic.storage_topics for end in info.ends)
