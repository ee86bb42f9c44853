"""The cursor of one granted unit: what to deliver next, what is in flight, what is acknowledged.

Pure: no clock and no I/O. The owner of the unit feeds fetched batches in order, delivers the rows
that `take` returns, passes on acks and nacks, and commits the entries of `start_commit` under the
fence of the grant.

Most of the time at most one delivery is in flight, and none waits for its redelivery. Then the two
row numbers of a `BatchCursor` are the whole state, and the cursor is *plain*. Otherwise there are
`Lanes`, until these are empty again.

A key that waits for a redelivery costs the other keys next to nothing. While no record of a lane is
in flight or ready, the records of the other keys are delivered by the row numbers, and a record of
a key that has a lane is set aside: it is appended to that lane when its turn comes. If the lanes
hold as much as they may, it is deferred instead, and read again when its key continues.

Every record that the ledger does not hold is delivered, also below the highest acknowledged offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Final

from tailrace.delivery.batch_cursor import BatchCursor
from tailrace.delivery.blocked_rows import BlockedRows
from tailrace.delivery.cursor_progress import CursorProgress, UnitCommit
from tailrace.delivery.deferred import DeferredRecords
from tailrace.delivery.failed_attempts import FailedAttempt, FailedAttempts
from tailrace.delivery.fetched import DeliveryCounts, FetchedBatch, FetchedRow
from tailrace.delivery.key_lanes import LaneState
from tailrace.delivery.lane_limits import LaneLimits
from tailrace.delivery.lanes import Lanes
from tailrace.message import Partition
from tailrace.topic.ledger import Progress

RECORDS_MAX: Final = 65_536
BYTES_MAX: Final = 8 << 20


class Cursor(BatchCursor):
    """The cursor of a unit that was granted at an epoch. For one thread at a time.

    A record is delivered at most `attempts` times, if that is a number; then its key is blocked. At
    most `records_max` records are delivered beyond the committed progress. At most `records_max`
    records, or `bytes_max`, are in lanes. `handed_out` and `end` are as
    for `CursorProgress`, `failed` as for `FailedAttempts`.
    """

    def __init__(
        self,
        partition: Partition,
        epoch: int,
        progress: Progress,
        *,
        group: str,
        attempts: int | None,
        records_max: int = RECORDS_MAX,
        bytes_max: int = BYTES_MAX,
        handed_out: int = 0,
        end: int = 0,
        failed: Mapping[int, FailedAttempt] | None = None,
    ) -> None:
        super().__init__(
            partition, CursorProgress(progress, group, str(partition), handed_out, end)
        )
        self.epoch = epoch
        self.draining = self._released = False
        self.failures: deque[FetchedRow] = deque()
        """Records that used up their attempts and were not reported to the consumer yet."""
        self.attempts = attempts
        self._limits = LaneLimits(records_max, bytes_max)
        self._released_below = 0
        self._failed_attempts = FailedAttempts(group, str(partition), failed or {})
        self._lanes: Lanes | None = None
        self._blocked = BlockedRows(self.batch, None)
        self._deferred = DeferredRecords()
        self.read_again_from: int | None = None
        """Where to read records again that were deferred; None for nowhere."""
        self._end: int | None = None
        self.changes = 0
        """Increased when a row is nacked, before `acked` moves: later rows may be blocked now."""

    @property
    def plain(self) -> bool:
        """True if `delivered` and `acked` are the whole state."""
        return self._lanes is None

    @property
    def mark(self) -> int:
        """All records below this offset are acknowledged."""
        self._record_rows()
        return self._progress.mark

    @property
    def in_flight(self) -> int:
        """The number of deliveries that are neither acknowledged nor nacked."""
        if self._released:
            return 0
        return self.delivered - self.acked + (0 if self._lanes is None else self._lanes.in_flight)

    @property
    def held_back(self) -> int:
        """The number of records in lanes that are not in flight."""
        return 0 if self._lanes is None else len(self._lanes) - self._lanes.in_flight

    @property
    def failed(self) -> int:
        """The number of keys that are blocked by a record that used up its attempts."""
        return 0 if self._lanes is None else self._lanes.failed

    @property
    def counts(self) -> DeliveryCounts:
        """The number of deliveries, acks and nacks so far."""
        self._record_rows()
        return self._counts

    @property
    def wants(self) -> bool:
        """True if a batch may be fed: each record of the last one was delivered or set aside."""
        return (
            not self.draining
            and self.delivered == len(self.batch)
            and not self._limits.blocked(self._lanes)
        )

    @property
    def buffered(self) -> bool:
        """True if there are fetched records that are not in flight."""
        return self.delivered < len(self.batch) or self.held_back > 0

    @property
    def drained(self) -> bool:
        """True if no delivery is in flight, and none will be."""
        return self.draining and self.in_flight == 0

    @property
    def finished(self) -> bool:
        """True if the unit is sealed and all of its records are acknowledged."""
        return self._end is not None and self.mark >= self._end

    @property
    def stalled(self) -> bool:
        """True if nothing can be delivered before a failed record, which was reported to the
        consumer, is acknowledged."""
        lanes = self._lanes
        if lanes is None or not lanes.failed or not lanes.idle or self.failures:
            return False
        return self._limits.blocked(self._lanes) or self.delivered == len(self.batch)

    @property
    def due(self) -> float | None:
        """The time of the next redelivery, or None."""
        return None if self._lanes is None or self.draining else self._lanes.due

    @property
    def must_commit(self) -> bool:
        """True if the next record may be delivered only after a commit."""
        if self.draining or self._limits.blocked(self._lanes) or self.delivered == len(self.batch):
            return False
        return self._next_offset >= self._progress.allowed

    def feed(self, batch: FetchedBatch) -> None:
        """Continue with the batch that was read from `read_from`. Only while `wants` is true."""
        assert self.wants, "a batch is fed when one is wanted"
        assert batch.start == self.read_from, "batches are fed in order"
        if self.delivered != self.acked:
            self._enter_lanes()
        self._record_rows()
        if self._lanes is not None:
            self._lanes.pack(self.batch)
        self._begin(batch)
        self._blocked = BlockedRows(self.batch, self._lanes)

    def forget_batch(self) -> None:
        """Free the memory of the batch if all of its records are acknowledged."""
        if self._lanes is None and self.acked == len(self.batch):
            self._record_rows()
            self._forget(self.read_from)
            self._blocked = BlockedRows(self.batch, None)

    @property
    def ended(self) -> bool:
        """True if the end offset of the unit is known and final."""
        return self._end is not None

    def end(self, offset: int) -> None:
        """Record that the partition is sealed: it has no record at or beyond this offset."""
        self._end = offset

    def plain_until(self) -> int:
        """Return the row of `batch` up to which the caller may deliver by moving `delivered` and
        `acked`. It is `delivered` if there is none."""
        lanes = self._lanes
        if self.draining or self.read_again_from is not None or self.delivered != self.acked:
            return self.delivered
        if lanes is not None and lanes.busy:
            return self.delivered
        if self.delivered == len(self.batch) or self._next_offset >= self._progress.allowed:
            return self.delivered
        end = bisect_left(self.batch.offsets, self._progress.allowed, self.delivered)
        return min(end, self._blocked.first(lanes, self.delivered))

    def ready(self, now: float) -> bool:
        """True if `take` would return a record."""
        if self.draining:
            return False
        if self.read_again_from is not None:
            self._read_again(self.read_again_from)
        if self._lanes is not None and self._lanes.ready(now):
            return True
        if self.delivered == self.acked and (self._lanes is None or not self._lanes.in_flight):
            return self._next_is_free(now)
        if self.delivered != self.acked:
            self._enter_lanes()
        lanes = self._lanes
        assert lanes is not None
        while not lanes.ready(now):
            if self._limits.full(lanes) or not self._may_advance:
                return False
            self._append_to_lane()
        return True

    def take(self, now: float) -> FetchedRow | None:
        """Return the next record to deliver, redeliveries first, or None if there is none now."""
        if not self.ready(now):
            return None
        if self._lanes is None or not self._lanes.busy:
            self.delivered += 1
            return FetchedRow(self.batch, self.delivered - 1, 1)
        entry, attempt = self._lanes.pop()
        return self._count_row(FetchedRow(entry.batch, entry.row, attempt))

    def ack(self, offset: int) -> bool:
        """Acknowledge a record that is in flight, or a failed one to skip it.

        Returns False if it is neither.
        """
        if self._is_in_flight(offset):
            self.acked = self.delivered
            return True
        entry = None if self._lanes is None else self._lanes.ack(offset)
        if self._lanes is None or entry is None:
            return False
        self._progress.ack(entry.floor, offset + 1)
        self._count(0, 1, 0)
        if entry.lane not in self._lanes and (first := self._deferred.pop(entry.lane)) is not None:
            again = self.read_again_from
            self.read_again_from = first if again is None else min(first, again)
        if not self._lanes.entries:
            self._lanes = None
        return True

    def nack(self, offset: int, delay_s: float, now: float) -> bool | None:
        """Schedule the redelivery of a record after the delay.

        Returns True, or False if the record had all its attempts and is in `failures`, or None if
        it is not in flight.
        """
        return self._nack(offset, now + delay_s, self.attempts)

    def reject(self, offset: int) -> bool:
        """Have a record fail at once: it is in `failures`. False if it is not in flight."""
        return self._nack(offset, 0.0, 0) is not None

    def _nack(self, offset: int, at: float, attempts: int | None) -> bool | None:
        if self._is_in_flight(offset):
            self.changes += 1
            self._enter_lanes()
        lanes = self._lanes
        if lanes is None:
            return None
        again = lanes.nack(offset, at, attempts)
        if again is not None:
            self._count(0, 0, 1)
        if again is False:
            entry = lanes.entries[offset]
            self.failures.append(FetchedRow(entry.batch, entry.row, lanes.attempt(offset)))
        return again

    def record_failure(
        self, offset: int, error: str, consumer: str, time_ms: int, next_ms: int | None
    ) -> None:
        """Record for people why a record was nacked just now, and when its next attempt is due."""
        assert self._lanes is not None
        entry, attempts = self._lanes.entries[offset], self._lanes.attempt(offset)
        key = entry.batch.keys[entry.row]
        self._failed_attempts.record(offset, key, attempts, error, consumer, time_ms, next_ms)

    def is_failed(self, offset: int) -> bool:
        """True if a record used up its attempts and is not acknowledged."""
        return self._lanes is not None and self._lanes.state(offset) is LaneState.FAILED

    def keeps(self, offset: int) -> bool:
        """True if a record is in a lane: it is not acknowledged."""
        return self._lanes is not None and offset in self._lanes.entries

    def release(self) -> None:
        """Stop, and wait for no ack or nack of the deliveries in flight."""
        self.draining = self._released = True
        if self.delivered != self.acked:
            self._released_below = self.batch.offsets[self.delivered - 1] + 1
            self._record_rows()
            self._move_to(self.acked)

    def drain(self) -> None:
        """Deliver no more records."""
        self.draining = True

    def start_commit(self) -> UnitCommit:
        """Return the entries to commit now, with the fence of the grant, and the progress that they
        make durable. No entries if nothing changed."""
        # The thread that delivers may acknowledge a plain delivery meanwhile. That belongs to the
        # next commit: this one must not report it, and so reads each value once, in this order.
        drained = self.drained
        mark = self.mark
        finished = self._end is not None and mark >= self._end
        if drained or finished:
            writes = self._progress.last_writes(0 if finished else self._unfinished_below())
        else:
            up_to = self._next_offset + self._limits.room(self._lanes)
            writes = self._progress.writes(up_to, needed=self.must_commit)
        writes |= self._failed_attempts.writes(self._progress.acked, self._behind)
        return UnitCommit(writes, mark, finished, drained)

    def saved(self) -> None:
        """Record that the entries of the last call of `start_commit` are committed."""
        self._progress.saved()
        self._failed_attempts.saved()

    def _behind(self, offset: int) -> int:
        """Return the number of records that wait behind one of a lane."""
        lanes = self._lanes
        if lanes is None or offset not in lanes.entries:
            return 0
        return lanes.behind(offset) + self._deferred.count(lanes.entries[offset].lane)

    @property
    def _next_offset(self) -> int:
        return self._offset_at(self.acked)

    def _unfinished_below(self) -> int:
        """Return the offset after the last record that was delivered and not acknowledged."""
        if self._lanes is None:
            return self._released_below
        return max(self._released_below, 1 + max(self._lanes.attempted(), default=-1))

    @property
    def _may_advance(self) -> bool:
        """True if there is a next row, and it may be delivered."""
        return self.delivered < len(self.batch) and self._next_offset < self._progress.allowed

    def _next_is_free(self, now: float) -> bool:
        """True if a row is free once blocked rows were set aside. Only with nothing in flight."""
        while self._may_advance:
            if self._blocked.first(self._lanes, self.delivered) > self.delivered:
                return True
            self._append_to_lane()
            if self._lanes is not None and self._lanes.ready(now):
                return True
        return False

    def _read_again(self, offset: int) -> None:
        """Continue at an offset: the records from there on that are neither acknowledged nor in a
        lane are read again."""
        if self.delivered != self.acked:
            self._enter_lanes()
        self._record_rows()
        if self._lanes is not None:
            self._lanes.pack(self.batch)
        self.read_again_from = None
        start = min(offset, self._recorded)  # it may be reading again already
        self._progress.restart(start)
        self._forget(start)
        self._blocked = BlockedRows(self.batch, None)

    def _enter_lanes(self) -> None:
        """Give the delivery in flight a lane."""
        row = self.acked
        assert self.delivered == row + 1, "a whole batch is acknowledged before another is taken"
        if self._lanes is None:
            self._lanes = Lanes()
        self._lanes.add_in_flight(self.batch, row, self._floor(row))
        self._set_aside(row)

    def _append_to_lane(self) -> None:
        """Set the next row aside: append it to its lane, unless the lanes are crowded or earlier
        ones of its key were deferred. A record that is read again is or was in its lane."""
        lanes, row = self._lanes, self.delivered
        offset, floor, key = self.batch.offsets[row], self._floor(row), self.batch.keys[row]
        if lanes is None or row in self._blocked.again:
            self._progress.ack(floor, offset)
        elif key and (key in self._deferred or (key in lanes and self._limits.crowded(lanes))):
            self._progress.ack(floor, offset)
            self._deferred.add(key, offset)
        else:
            lanes.add(self.batch, row, floor)
        self._set_aside(row)
