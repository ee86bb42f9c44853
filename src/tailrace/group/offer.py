"""What a unit offers to be handed out, and the count of it."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.group.chunk import Chunk


class Offer(NamedTuple):
    """A record to be delivered: a row of a chunk, for the `attempt`-th time."""

    chunk: Chunk
    row: int
    attempt: int

    @property
    def offset(self) -> int:
        """Its offset."""
        return self.chunk.offsets[self.row]


class Counts(NamedTuple):
    """How many deliveries were handed out and acknowledged here, how many nacks there were."""

    delivered: int
    acknowledged: int
    nacked: int
