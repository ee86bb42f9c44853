"""The storage topics of a topic, with the bounds of their partitions."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.backend.contract import Bounds
from tailrace.topic.lineage import Shape
from tailrace.topic.open_streams import held_storage_topics
from tailrace.topic.view import View


@dataclass(frozen=True, slots=True)
class StorageTopicInfo:
    """A storage topic: its shape, its bounds, and if it is sealed.

    `starts` and `ends` have the first offset and the end offset of each partition.
    """

    index: int
    partitions: int
    k: int
    base: int
    sealed: bool
    starts: list[int]
    ends: list[int]


def read_storage_topics(view: View) -> list[StorageTopicInfo]:
    """Read the storage topics of a topic that exist now, oldest first."""
    definition = view.refresh().definition
    found = [
        _info(storage.storage, definition.storage[storage.storage], bounds)
        for storage, bounds in held_storage_topics(view.backend.log, view.topic, definition)
    ]
    return found[::-1]


def _info(index: int, shape: Shape, bounds: list[Bounds]) -> StorageTopicInfo:
    return StorageTopicInfo(
        index,
        shape.partitions,
        shape.k,
        shape.base,
        all(each.sealed for each in bounds),
        [each.start for each in bounds],
        [each.end for each in bounds],
    )
