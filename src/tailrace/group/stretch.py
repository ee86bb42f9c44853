"""A chunk that is handed out one record after the other: two numbers say how far.

What is before `cursor` was handed out, and what is before `done` is acknowledged. Whoever hands out
moves them.
"""

from __future__ import annotations

from tailrace.group.account import Account
from tailrace.group.chunk import Chunk
from tailrace.group.offer import Counts
from tailrace.message import Partition


class Stretch:
    """Where a unit is in its log. For one thread at a time."""

    def __init__(self, partition: Partition, account: Account) -> None:
        self.partition = partition
        self.chunk = _nothing_read(partition, account.mark)
        self.cursor = 0
        self.done = 0
        self._account = account
        self._counts = Counts(0, 0, 0)
        self._counted = 0, 0

    @property
    def read_from(self) -> int:
        """Where the next chunk is to begin."""
        return self.chunk.next_offset

    @property
    def ahead_bytes(self) -> int:
        """About how much of the chunk is ahead of the cursor."""
        return (len(self.chunk) - self.cursor) * self.chunk.record_bytes

    def _begin(self, chunk: Chunk) -> None:
        """Go on with another chunk, but for what was acknowledged before."""
        self.chunk = self._account.without_done(chunk)
        self.chunk.redelivered_below = self._account.handed_below
        self._pass_over(0)

    def _forget(self) -> None:
        """Keep nothing of the chunk."""
        self.chunk = _nothing_read(self.partition, self.read_from)
        self._pass_over(0)

    def _pass_over(self, index: int) -> None:
        """Go on at an index of the chunk; others account for what is before it."""
        self.cursor = self.done = index
        self._counted = index, index

    def _note(self) -> None:
        """Enter in the account, and in the counts, how far the two numbers moved."""
        cursor, done, chunk = self.cursor, self.done, self.chunk
        if done == len(chunk):
            self._account.ack(chunk.start, chunk.next_offset)
        elif done:
            self._account.ack(chunk.start, chunk.offsets[done - 1] + 1)
        self._add(cursor - self._counted[0], done - self._counted[1], 0)
        self._counted = cursor, done

    def _add(self, delivered: int, acknowledged: int, nacked: int) -> None:
        counts = self._counts
        self._counts = Counts(counts[0] + delivered, counts[1] + acknowledged, counts[2] + nacked)

    def _last_is(self, offset: int) -> bool:
        """Whether that is the one in hand."""
        return self.cursor > self.done and self.chunk.offsets[self.cursor - 1] == offset

    def _offset_at(self, index: int) -> int:
        chunk = self.chunk
        return chunk.offsets[index] if index < len(chunk) else chunk.next_offset

    def _floor(self, index: int) -> int:
        """Behind the record before that."""
        return self.chunk.offsets[index - 1] + 1 if index else self.chunk.start


def _nothing_read(partition: Partition, at: int) -> Chunk:
    return Chunk.listed(partition, at, at, [], [])
