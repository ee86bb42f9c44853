"""Orders of many keys, and how far a group is in them."""

from __future__ import annotations

from typing import Any

from tailrace.backend.contract import Backend
from tailrace.topic.topic import Topic
from tests.unit.group_store.consuming import (
    marks,
)

KEYS = 40


def push(topic: Topic[Any]) -> None:
    topic.push_many([(f"c{i}", i) for i in range(KEYS)])


def ends(topic: Topic[Any]) -> dict[str, int]:
    return {
        f"{topic.name}/{info.index}.{number}": end
        for info in topic.storage_topics
        for number, end in enumerate(info.ends)
    }


def all_marks(backend: Backend, topic: Topic[Any]) -> dict[str, int]:
    return dict(zip(ends(topic), marks(backend, *ends(topic)), strict=True))
