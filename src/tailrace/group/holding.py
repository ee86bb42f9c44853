"""One granted unit being consumed: what is next, what is in hand, what is done.

Pure: no clock and no I/O. Its owner feeds it chunks in order, hands out what it offers, brings back
acknowledgements, and commits its `writes` under the fence of the grant.

Most of the time at most one delivery is in hand, and nothing waits to come again. Then progress is
two numbers: in `chunk`, what is before `cursor` was handed out and what is before `done` is
acknowledged. As soon as that does not say it all, there are `Lanes`, until they are empty again.

Everything that the ledger does not hold is delivered, also below the highest acknowledged offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final, NamedTuple

from tailrace.backend.contract import TableKey
from tailrace.group.chunk import Chunk
from tailrace.group.lanes import Lanes
from tailrace.group.reach import reach_key, reach_value
from tailrace.message import Partition
from tailrace.topic.ledger import Progress

RECORDS_MAX: Final = 65_536
BYTES_MAX: Final = 8 << 20


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


class Holding:
    """A unit, granted at an epoch. For one thread at a time.

    `attempts` is how often one record is handed out before its key is given up. At most
    `records_max` records are handed out beyond what is committed, and that many, or `bytes_max`,
    are held back behind others of their key. `reach` is the unit's as it was found, and `end` where
    the log ended then: `handed_below` is the lower of them.
    """

    def __init__(
        self,
        partition: Partition,
        epoch: int,
        progress: Progress,
        *,
        group: str,
        attempts: int,
        records_max: int = RECORDS_MAX,
        bytes_max: int = BYTES_MAX,
        reach: int = 0,
        end: int = 0,
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.chunk = Chunk.listed(partition, progress.mark, progress.mark, [], [])
        self.cursor = 0
        self.done = 0
        self.draining = False
        self._released = False
        self.handed_below = min(reach, end)
        """What is not acknowledged below this offset may have been in somebody's hands before."""
        self.failures: deque[Offer] = deque()
        """What has used up its attempts and was not told to anybody yet."""
        self._progress = progress
        self._attempts = attempts
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._reach_key = reach_key(group, str(partition))
        self._reach = self._reach_wanted = 0  # what may be handed out: all below it
        self._reach_stored = self._reach_written = reach
        self._given_up = 0
        self._lanes: Lanes | None = None
        self._end: int | None = None
        self._counts = Counts(0, 0, 0)
        self._counted = 0, 0

    @property
    def plain(self) -> bool:
        """Whether `cursor` and `done` say it all."""
        return self._lanes is None

    @property
    def mark(self) -> int:
        """All below it is acknowledged."""
        self._fold()
        return self._progress.mark

    @property
    def in_hand(self) -> int:
        """How many deliveries were handed out and are neither acknowledged nor given back."""
        if self._released:
            return 0
        return self.cursor - self.done if self._lanes is None else self._lanes.in_hand

    @property
    def held_back(self) -> int:
        """How many are in lanes and not in hand."""
        return 0 if self._lanes is None else len(self._lanes) - self._lanes.in_hand

    @property
    def failed(self) -> int:
        """How many keys are blocked by a delivery that used up its attempts."""
        return 0 if self._lanes is None else self._lanes.failed

    @property
    def counts(self) -> Counts:
        """What happened here so far."""
        self._count()
        return self._counts

    @property
    def read_from(self) -> int:
        """Where the next chunk is to begin."""
        return self.chunk.next_offset

    @property
    def wants(self) -> bool:
        """Whether a chunk may be fed: all of the last one was handed out or is held back."""
        return not self.draining and self.cursor == len(self.chunk) and not self._full

    @property
    def drained(self) -> bool:
        """Whether nothing is in hand, and nothing will be."""
        return self.draining and self.in_hand == 0

    @property
    def finished(self) -> bool:
        """Whether the unit has come to its end, and all of it is acknowledged."""
        return self._end is not None and self.mark >= self._end

    @property
    def stalled(self) -> bool:
        """Whether nothing can go on here before a failed delivery, of which somebody was told, is
        acknowledged."""
        lanes = self._lanes
        if lanes is None or not lanes.failed or not lanes.idle or self.failures:
            return False
        return self._full or self.cursor == len(self.chunk)

    @property
    def due(self) -> float | None:
        """When a delivery that was given back may be handed out again."""
        return None if self._lanes is None or self.draining else self._lanes.due

    @property
    def must_commit(self) -> bool:
        """Whether what is next may be handed out only after a commit."""
        if self.draining or self._full or self.cursor == len(self.chunk):
            return False
        return self._next_offset >= self._reach

    def feed(self, chunk: Chunk) -> None:
        """What was read from `read_from` on."""
        assert self.wants, "a chunk is fed when one is wanted"
        assert chunk.start == self.read_from, "chunks come in order"
        if self.cursor != self.done:
            self._enter_lanes()
        self._leave_chunk()
        if self._progress.highest >= chunk.start:
            chunk = chunk.some(self._wanted(chunk))
        chunk.redelivered_below = self.handed_below
        self.chunk = chunk
        self.cursor = self.done = 0
        self._counted = 0, 0

    @property
    def ended(self) -> bool:
        """Whether it is known where the unit ends."""
        return self._end is not None

    def end(self, offset: int) -> None:
        """The partition is sealed: there will be nothing at or beyond this offset."""
        self._end = offset

    def stretch(self) -> int:
        """Up to which index of `chunk` records may be handed out one after the other, by moving
        `cursor` and `done`; `cursor` when none may."""
        if self.draining or self._lanes is not None or self.cursor != self.done:
            return self.cursor
        if self.cursor == len(self.chunk) or self._next_offset >= self._reach:
            return self.cursor
        return bisect_left(self.chunk.offsets, self._reach, self.cursor)

    def ready(self, now: float) -> bool:
        """Whether `take` has something."""
        if self.draining:
            return False
        if self._lanes is None:
            if self.cursor == self.done:
                return self.stretch() > self.cursor
            self._enter_lanes()
        lanes = self._lanes
        assert lanes is not None
        while not lanes.ready(now):
            if self._full or self.cursor == len(self.chunk) or self._next_offset >= self._reach:
                return False
            self._into_lane()
        return True

    def take(self, now: float) -> Offer | None:
        """Hand out the next delivery: those to come again first. None when there is none now."""
        if not self.ready(now):
            return None
        if self._lanes is None:
            self.cursor += 1
            return Offer(self.chunk, self.cursor - 1, 1)
        held, attempt = self._lanes.take()
        delivered, acknowledged, nacked = self._counts
        self._counts = Counts(delivered + 1, acknowledged, nacked)
        return Offer(held.chunk, held.row, attempt)

    def ack(self, offset: int) -> bool:
        """It is done; False when it is not in hand here. One that has failed may be acknowledged
        too, to pass over it."""
        if self._lanes is None:
            if self.cursor == self.done or self.chunk.offsets[self.cursor - 1] != offset:
                return False
            self.done = self.cursor
            return True
        held = self._lanes.ack(offset)
        if held is None:
            return False
        self._progress.ack(held.floor, offset + 1)
        delivered, acknowledged, nacked = self._counts
        self._counts = Counts(delivered, acknowledged + 1, nacked)
        if not self._lanes.held:
            self._lanes = None
        return True

    def nack(self, offset: int, delay_s: float, now: float) -> bool:
        """It is not done. Whether it comes again, after the delay; if not, `failures` has it."""
        if self._lanes is None:
            if self.cursor == self.done or self.chunk.offsets[self.cursor - 1] != offset:
                return False
            self._enter_lanes()
        lanes = self._lanes
        assert lanes is not None
        again = lanes.nack(offset, now + delay_s, self._attempts)
        if again is None:
            return False
        delivered, acknowledged, nacked = self._counts
        self._counts = Counts(delivered, acknowledged, nacked + 1)
        if not again:
            held = lanes.held[offset]
            self.failures.append(Offer(held.chunk, held.row, self._attempts))
        return again

    def release(self) -> None:
        """Give up what is in hand: nobody waits for what became of it. Only to end."""
        self.draining = self._released = True
        if self._lanes is None and self.cursor != self.done:
            self._given_up = self.chunk.offsets[self.cursor - 1] + 1
            self.cursor = self.done

    def drain(self) -> None:
        """Offer nothing more."""
        self.draining = True

    def writes(self) -> dict[TableKey, bytes | None]:
        """What to commit now, with the fence of the grant; empty when nothing changed."""
        self._fold()
        entries = self._progress.writes() if self._progress.highest >= 0 else {}
        if self.drained or self.finished:
            reach = self._left_behind()
            changed = reach != self._reach_stored
        else:
            room = self._records_max - (0 if self._lanes is None else len(self._lanes))
            self._reach_wanted = max(self._reach, self._next_offset + room)
            reach = max(self._reach_wanted, self.handed_below)
            changed = self.must_commit or bool(entries)
        if changed:
            entries[self._reach_key] = reach_value(reach)
            self._reach_written = reach
        return entries

    def saved(self) -> None:
        """What `writes` gave last is committed."""
        self._progress.saved()
        self._reach, self._reach_stored = self._reach_wanted, self._reach_written

    @property
    def _full(self) -> bool:
        lanes = self._lanes
        return lanes is not None and (
            len(lanes) >= self._records_max or lanes.size_bytes >= self._bytes_max
        )

    @property
    def _next_offset(self) -> int:
        at = self.done if self._lanes is None else self.cursor
        return self.chunk.offsets[at] if at < len(self.chunk) else self.chunk.next_offset

    def _left_behind(self) -> int:
        """The reach that a clean end leaves: up to where deliveries were handed out in vain."""
        if self.finished:
            return 0
        reach = self._given_up
        if self._progress.mark < self.handed_below:
            reach = max(reach, self.handed_below)
        if self._lanes is not None:
            reach = max(reach, 1 + max(self._lanes.attempted(), default=-1))
        return reach

    def _fold(self) -> None:
        """Tell the progress what the two numbers say."""
        if self._lanes is not None:
            return
        done, chunk = self.done, self.chunk
        if done == len(chunk):
            self._progress.ack(chunk.start, chunk.next_offset)
        elif done:
            self._progress.ack(chunk.start, chunk.offsets[done - 1] + 1)

    def _count(self) -> None:
        """Add to the counts how far the two numbers moved."""
        if self._lanes is None:
            cursor, done = self.cursor, self.done
            delivered, acknowledged, nacked = self._counts
            self._counts = Counts(
                delivered + cursor - self._counted[0],
                acknowledged + done - self._counted[1],
                nacked,
            )
            self._counted = cursor, done

    def _leave_chunk(self) -> None:
        self._count()
        self._fold()
        if self._lanes is not None:
            chunk = self.chunk
            behind = chunk.offsets[-1] + 1 if chunk.offsets else chunk.start
            self._progress.ack(behind, chunk.next_offset)
            self._lanes.pack(chunk)

    def _enter_lanes(self) -> None:
        """The one in hand gets a lane."""
        self._count()
        self._fold()
        self._lanes = Lanes()
        assert self.cursor - self.done <= 1, "a whole batch is acknowledged before another is taken"
        if self.done < self.cursor:
            self._lanes.add(self.chunk, self.done, self._floor(self.done))
            self._lanes.take()
        self.done = self.cursor
        self._counted = self.cursor, self.cursor

    def _into_lane(self) -> None:
        assert self._lanes is not None
        self._lanes.add(self.chunk, self.cursor, self._floor(self.cursor))
        self.cursor += 1
        self.done = self.cursor
        self._counted = self.cursor, self.cursor

    def _wanted(self, chunk: Chunk) -> list[int]:
        """The indices of what the ledger does not hold."""
        wanted: list[int] = []
        for start, end in self._progress.holes(chunk.next_offset):
            first = bisect_left(chunk.offsets, start)
            wanted += range(first, bisect_left(chunk.offsets, end, first))
        return wanted

    def _floor(self, index: int) -> int:
        return self.chunk.offsets[index - 1] + 1 if index else self.chunk.start
