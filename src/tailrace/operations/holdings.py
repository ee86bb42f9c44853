"""What a partition holds, counted, and the files it is held in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tailrace.backend.embedded.layout import Layout
from tailrace.backend.embedded.reading import EmbeddedLog, SegmentInfo
from tailrace.errors import InvalidValue
from tailrace.hub import Hub
from tailrace.message import Partition


class Held(NamedTuple):
    """How much there is. Unlike the distance between two offsets, `messages` counts no gaps."""

    messages: int = 0
    bytes: int = 0
    segments: int = 0

    @classmethod
    def of(cls, segments: Iterable[SegmentInfo]) -> Held:
        """The sum over segments."""
        listed = list(segments)
        return cls(sum(s.records for s in listed), sum(s.bytes for s in listed), len(listed))

    def plus(self, other: Held) -> Held:
        """The sum of two."""
        return Held(*map(sum, zip(self, other, strict=True)))


def total(all_held: Iterable[Held]) -> Held:
    """The sum of many."""
    result = Held()
    for held in all_held:
        result = result.plus(held)
    return result


def embedded_log(hub: Hub) -> EmbeddedLog:
    """The log with its segments; `InvalidValue` where the hub's backend keeps none of its own."""
    log = hub.backend.log
    if not isinstance(log, EmbeddedLog):
        raise InvalidValue("hub", hub.backend.name, "a hub in a directory, which has segments")
    return log


def layout_of(hub: Hub) -> Layout:
    """Where the files of the hub are."""
    return Layout(Path(hub.backend.name))


def held_in(hub: Hub, partition: Partition) -> Held:
    """What a partition holds now."""
    return Held.of(embedded_log(hub).segments(partition))


def segment_files(info: SegmentInfo) -> list[Path]:
    """The files of a segment that are there: index, records, positions."""
    files = (info.log_path.with_suffix(ending) for ending in (".index", ".log", ".positions"))
    return [file for file in files if file.exists()]
