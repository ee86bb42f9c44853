"""The storage topics of a topic, with the bounds of their partitions."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Read the storage topics of a topic as they are now, oldest first."""
    definition = view.refresh().definition
    found = []
    for index, shape in enumerate(definition.storage):
        bounds = view.backend.log.bounds_of(definition.storage_topic(view.topic, index))
        found.append(
            StorageTopicInfo(
                index,
                shape.partitions,
                shape.k,
                shape.base,
                all(each.sealed for each in bounds),
                [each.start for each in bounds],
                [each.end for each in bounds],
            )
        )
    return found
