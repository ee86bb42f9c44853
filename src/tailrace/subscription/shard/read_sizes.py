"""How much a shard reads at once.

The first read of a partition is small, so that the first calls need not wait for a large backlog;
so is one after a jump, as retries of many keys make it: most of a large read would be for nothing.
Each read that follows the one before may return twice as much.
"""

from __future__ import annotations

from typing import Final

from tailrace.message import Partition

FIRST_BYTES: Final = 16 << 10
NEAR: Final = 64
"""A read that begins so many offsets behind the one before, or fewer, follows it."""


class ReadSizes:
    """The sizes of the reads of one shard, at most `bytes_max`. For one thread at a time."""

    def __init__(self) -> None:
        self._ends: dict[Partition, int] = {}
        self._sizes: dict[Partition, int] = {}

    def next(self, partition: Partition, start: int, bytes_max: int) -> int:
        """Return the most bytes of a read from an offset."""
        follows = 0 <= start - self._ends.get(partition, -1 - NEAR) <= NEAR
        size = 2 * self._sizes[partition] if follows else FIRST_BYTES
        size = self._sizes[partition] = min(size, bytes_max)
        return size

    def ended(self, partition: Partition, next_offset: int) -> None:
        """Record where the last read of a partition ended."""
        self._ends[partition] = next_offset
