"""What became of a unit's records, and how much of that is stored: its progress and its reach.

Pure: whoever owns the unit commits what it is to write, and says when that was done.
"""

from __future__ import annotations

from bisect import bisect_left

from tailrace.backend.contract import TableKey
from tailrace.group.chunk import Chunk
from tailrace.group.reach import reach_key, reach_value
from tailrace.topic.ledger import Progress

Writes = dict[TableKey, bytes | None]


class Account:
    """That of one unit, at one owner. For one thread at a time.

    `reach` is the unit's as it was found, and `end` where the log ended then.
    """

    def __init__(self, progress: Progress, group: str, unit: str, reach: int, end: int) -> None:
        self.handed_below = min(reach, end)
        """What is not acknowledged below this offset may have been in somebody's hands before."""
        self.allowed = 0
        """What may be handed out: all below it."""
        self._progress = progress
        self._key = reach_key(group, unit)
        self._wanted = 0
        self._stored = self._written = reach

    @property
    def mark(self) -> int:
        """All below it is acknowledged."""
        return self._progress.mark

    def ack(self, first: int, after: int) -> None:
        """What is from one offset on, before another, is done."""
        self._progress.ack(first, after)

    def without_done(self, chunk: Chunk) -> Chunk:
        """A chunk without what was acknowledged before."""
        if self._progress.highest < chunk.start:
            return chunk
        left: list[int] = []
        for start, end in self._progress.holes(chunk.next_offset):
            first = bisect_left(chunk.offsets, start)
            left += range(first, bisect_left(chunk.offsets, end, first))
        return chunk.some(left)

    def writes(self, up_to: int, *, needed: bool) -> Writes:
        """What to commit for everything before an offset to be allowed, if that is needed or there
        is something else to commit."""
        entries = self._acknowledged()
        self._wanted = max(self.allowed, up_to)
        if needed or entries:
            entries |= self._reach(max(self._wanted, self.handed_below))
        return entries

    def last_writes(self, given_up: int) -> Writes:
        """What to commit at a clean end, when what is before `given_up` was handed out in vain."""
        entries = self._acknowledged()
        reach = given_up if self.mark >= self.handed_below else max(given_up, self.handed_below)
        return entries | self._reach(reach) if reach != self._stored else entries

    def saved(self) -> None:
        """What was to be committed last is."""
        self._progress.saved()
        self.allowed, self._stored = self._wanted, self._written

    def _acknowledged(self) -> Writes:
        return self._progress.writes() if self._progress.highest >= 0 else {}

    def _reach(self, reach: int) -> Writes:
        self._written = reach
        return {self._key: reach_value(reach)}
