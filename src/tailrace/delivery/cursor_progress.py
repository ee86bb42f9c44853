"""The acknowledged records of a unit, and the part of them that is stored.

Pure: the owner of the unit commits `writes`, and calls `saved` after the commit.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from tailrace.backend.contract import TableKey
from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.handed_out import handed_out_key, handed_out_value
from tailrace.topic.ledger import Progress

Writes = dict[TableKey, bytes | None]


class UnitCommit(NamedTuple):
    """The entries of a commit, and the unit's progress once they are durable."""

    writes: Writes
    mark: int
    finished: bool
    drained: bool


class CursorProgress:
    """The progress of one unit at one owner. For one thread at a time.

    `handed_out` is the stored value that the owner found, and `end` the end offset of the log at
    that time.
    """

    def __init__(
        self, progress: Progress, group: str, unit: str, handed_out: int, end: int
    ) -> None:
        self.redelivered_below = min(handed_out, end)
        """Unacknowledged records below this offset may have been delivered before."""
        self.allowed = 0
        """Records below this offset may be delivered."""
        self._progress = progress
        self._key = handed_out_key(group, unit)
        self._wanted = 0
        self._highest_wanted = 0
        self._written = handed_out
        self._stored: int | None = handed_out
        """The stored `handed_out`; None if a commit of another value may have happened."""

    @property
    def mark(self) -> int:
        """All records below this offset are acknowledged."""
        return self._progress.mark

    def acked(self, offset: int) -> bool:
        """True if the offset is acknowledged."""
        return self._progress.acked(offset)

    def ack(self, first: int, after: int) -> None:
        """Acknowledge the offsets from `first` up to, not including, `after`."""
        self._progress.ack(first, after)

    def without_acked(self, batch: FetchedBatch) -> FetchedBatch:
        """Return a batch without the records that were acknowledged before."""
        if self._progress.highest < batch.start:
            return batch
        left: list[int] = []
        for start, end in self._progress.holes(batch.next_offset, batch.start):
            first = bisect_left(batch.offsets, start)
            left += range(first, bisect_left(batch.offsets, end, first))
        return batch.select(left)

    def writes(self, up_to: int, *, needed: bool) -> Writes:
        """Return the entries to commit. With them, all records before `up_to` may be delivered.

        Empty if no acknowledgement is to be committed and the permission is not `needed`.
        """
        entries = self._acknowledged()
        self._wanted = max(self.allowed, up_to)
        if needed or entries:
            highest = max(self._wanted, self._highest_wanted, self.redelivered_below)
            entries |= self._handed_out(highest)
        return entries

    def restart(self, offset: int) -> None:
        """Allow no record at or after an offset before the next commit: records are delivered from
        there on that were deferred."""
        self._highest_wanted = max(self._highest_wanted, self._wanted, self.allowed)
        self.allowed = self._wanted = offset

    def last_writes(self, unfinished_below: int) -> Writes:
        """Return the entries to commit at a clean end.

        Below `unfinished_below` are records that were delivered and not acknowledged.
        """
        entries = self._acknowledged()
        if self.mark < self.redelivered_below:
            unfinished_below = max(unfinished_below, self.redelivered_below)
        if unfinished_below == self._stored:
            return entries
        return entries | self._handed_out(unfinished_below)

    def saved(self) -> None:
        """Record that the entries of the last call of `writes` or `last_writes` are committed."""
        self._progress.saved()
        self.allowed, self._stored = self._wanted, self._written

    def _acknowledged(self) -> Writes:
        return self._progress.writes() if self._progress.highest >= 0 else {}

    def _handed_out(self, offset: int) -> Writes:
        self._written, self._stored = offset, None
        return {self._key: handed_out_value(offset)}
