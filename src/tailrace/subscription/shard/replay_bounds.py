"""The bounds of a replay: the messages of a range of time, resolved once to offsets.

A replay of a queue is a subscription of the queue's topic that begins and ends at fixed offsets.
They hold all messages of the range, and others: each timestamp is checked when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import msgspec

from tailrace.delivery.filter.batch_filter import BatchFilter
from tailrace.delivery.filter.time_range import TimeRangeFilter
from tailrace.message import Partition


class ReplayBounds(msgspec.Struct, frozen=True):
    """The range of a replay: its times, the number of storage topics that it reads, and the offsets
    in each of their partitions, by ``STORAGE.PARTITION``."""

    start_ms: int
    end_ms: int
    opened: int
    starts: dict[str, int]
    ends: dict[str, int]

    @classmethod
    def of(
        cls, start_ms: int, end_ms: int, opened: int, spans: Mapping[Partition, tuple[int, int]]
    ) -> Self:
        """Return the bounds of a range of time that is within these offsets of each partition."""
        within = {_name(each): span for each, span in spans.items() if each.storage < opened}
        starts = {name: start for name, (start, _) in within.items()}
        return cls(
            start_ms, end_ms, opened, starts, {name: end for name, (_, end) in within.items()}
        )

    def starts_in(self, topic: str) -> dict[Partition, int]:
        """Return the first offset of each partition that belongs to the replay of a topic."""
        return {Partition.parse(f"{topic}/{name}"): at for name, at in self.starts.items()}

    def end(self, partition: Partition) -> int:
        """Return the offset of a partition at which the replay ends."""
        return self.ends[_name(partition)]

    def filter(self, too: BatchFilter | None) -> BatchFilter:
        """Return the filter of messages of the range that match another one too, if there is
        one."""
        return TimeRangeFilter(self.start_ms, self.end_ms, too)


def _name(partition: Partition) -> str:
    return f"{partition.storage}.{partition.number}"
