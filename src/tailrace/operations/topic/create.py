"""Creating topics."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from tailrace.hub.hub import Hub
from tailrace.operations.topic.describe import TopicSummary, summarize
from tailrace.topic.internal_topics import check_new_topic
from tailrace.topic.lineage import check_count
from tailrace.topic.order_by import OrderBy
from tailrace.topic.router import RouterKind


class ValueKind(StrEnum):
    """The type of the values of a new topic."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


_PYTHON_TYPES: Final[dict[ValueKind, Any]] = {
    ValueKind.JSON: None,
    ValueKind.TEXT: str,
    ValueKind.BYTES: bytes,
}


def check_topic(name: str, *, partitions: int, any_count: bool, order_by: str | None) -> None:
    """Raise `InvalidName` or `InvalidValue` for a topic that no hub would create."""
    check_new_topic(name)
    check_count(partitions, any_count)
    if order_by is not None:
        OrderBy(order_by)


def create_topic(
    hub: Hub,
    name: str,
    *,
    partitions: int,
    router: RouterKind,
    kind: ValueKind,
    order_by: str | None,
    any_count: bool,
    exist_ok: bool,
) -> TopicSummary:
    """Create a topic. Raise `TopicExists` if the name is taken.

    With `exist_ok`, only a topic with another definition is an error.
    """
    python_type = _PYTHON_TYPES[kind]
    topic = hub.create_topic(
        name,
        python_type,
        partitions=partitions,
        router=router.value,
        order_by=order_by,
        any_count=any_count,
        exist_ok=exist_ok,
    )
    return summarize(hub, topic)
