"""One granted unit being consumed: what is next, what is in hand, what is done.

Pure: no clock and no I/O. Its owner feeds it chunks in order, hands out what it offers, brings back
acknowledgements, and commits its `writes` under the fence of the grant.

Most of the time at most one delivery is in hand, and nothing waits to come again. Then the two
numbers of a `Stretch` say it all. As soon as they do not there are `Lanes`, until these are empty
again.

Everything that the ledger does not hold is delivered, also below the highest acknowledged offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final

from tailrace.group.account import Account, Writes
from tailrace.group.chunk import Chunk
from tailrace.group.lanes import Lanes
from tailrace.group.offer import Counts, Offer
from tailrace.group.stretch import Stretch
from tailrace.message import Partition
from tailrace.topic.ledger import Progress

RECORDS_MAX: Final = 65_536
BYTES_MAX: Final = 8 << 20


class Holding(Stretch):
    """A unit, granted at an epoch. For one thread at a time.

    `attempts` is how often one record is handed out before its key is given up. At most
    `records_max` records are handed out beyond what is committed, and that many, or `bytes_max`,
    are held back behind others of their key. `reach` and `end` are as for `Account`.
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
        super().__init__(partition, Account(progress, group, str(partition), reach, end))
        self.epoch = epoch
        self.draining = False
        self._released = False
        self.failures: deque[Offer] = deque()
        """What has used up its attempts and was not told to anybody yet."""
        self._attempts = attempts
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._given_up = 0
        self._lanes: Lanes | None = None
        self._end: int | None = None

    @property
    def plain(self) -> bool:
        """Whether `cursor` and `done` say it all."""
        return self._lanes is None

    @property
    def mark(self) -> int:
        """All below it is acknowledged."""
        self._note()
        return self._account.mark

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
        self._note()
        return self._counts

    @property
    def wants(self) -> bool:
        """Whether a chunk may be fed: all of the last one was handed out or is held back."""
        return not self.draining and self.cursor == len(self.chunk) and not self._full

    @property
    def stocked(self) -> bool:
        """Whether it has records that were read and are in nobody's hand."""
        return self.cursor < len(self.chunk) or self.held_back > 0

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
        return self._next_offset >= self._account.allowed

    def feed(self, chunk: Chunk) -> None:
        """What was read from `read_from` on."""
        assert self.wants, "a chunk is fed when one is wanted"
        assert chunk.start == self.read_from, "chunks come in order"
        if self.cursor != self.done:
            self._enter_lanes()
        self._note()
        if self._lanes is not None:
            last = self.chunk
            behind = last.offsets[-1] + 1 if last.offsets else last.start
            self._account.ack(behind, last.next_offset)
            self._lanes.pack(last)
        self._begin(chunk)

    def let_go(self) -> None:
        """Forget a chunk of which everything is done."""
        if self._lanes is None and self.done == len(self.chunk):
            self._note()
            self._forget()

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
        if self.cursor == len(self.chunk) or self._next_offset >= self._account.allowed:
            return self.cursor
        return bisect_left(self.chunk.offsets, self._account.allowed, self.cursor)

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
            if self._full or self.cursor == len(self.chunk):
                return False
            if self._next_offset >= self._account.allowed:
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
        self._add(1, 0, 0)
        return Offer(held.chunk, held.row, attempt)

    def ack(self, offset: int) -> bool:
        """It is done; False when it is not in hand here. One that has failed may be acknowledged
        too, to pass over it."""
        if self._lanes is None:
            if not self._last_is(offset):
                return False
            self.done = self.cursor
            return True
        held = self._lanes.ack(offset)
        if held is None:
            return False
        self._account.ack(held.floor, offset + 1)
        self._add(0, 1, 0)
        if not self._lanes.held:
            self._lanes = None
        return True

    def nack(self, offset: int, delay_s: float, now: float) -> bool | None:
        """It is not done. Whether it comes again, after the delay; if not, `failures` has it. None
        when it is not in hand here."""
        if self._lanes is None:
            if not self._last_is(offset):
                return None
            self._enter_lanes()
        lanes = self._lanes
        assert lanes is not None
        again = lanes.nack(offset, now + delay_s, self._attempts)
        if again is None:
            return None
        self._add(0, 0, 1)
        if not again:
            held = lanes.held[offset]
            self.failures.append(Offer(held.chunk, held.row, self._attempts))
        return again

    def keeps(self, offset: int) -> bool:
        """Whether a record was handed out and is not done, whatever becomes of it next."""
        return self._lanes is not None and offset in self._lanes.held

    def release(self) -> None:
        """Give up what is in hand: nobody waits for what became of it. Only to end."""
        self.draining = self._released = True
        if self._lanes is None and self.cursor != self.done:
            self._given_up = self.chunk.offsets[self.cursor - 1] + 1
            self.cursor = self.done

    def drain(self) -> None:
        """Offer nothing more."""
        self.draining = True

    def writes(self) -> Writes:
        """What to commit now, with the fence of the grant; empty when nothing changed."""
        self._note()
        if self.drained or self.finished:
            return self._account.last_writes(self._handed_in_vain())
        room = self._records_max - (0 if self._lanes is None else len(self._lanes))
        return self._account.writes(self._next_offset + room, needed=self.must_commit)

    def saved(self) -> None:
        """What `writes` gave last is committed."""
        self._account.saved()

    @property
    def _full(self) -> bool:
        lanes = self._lanes
        return lanes is not None and (
            len(lanes) >= self._records_max or lanes.size_bytes >= self._bytes_max
        )

    @property
    def _next_offset(self) -> int:
        return self._offset_at(self.done if self._lanes is None else self.cursor)

    def _handed_in_vain(self) -> int:
        """Up to where deliveries were handed out that are not done."""
        if self._lanes is None or self.finished:
            return 0 if self.finished else self._given_up
        return max(self._given_up, 1 + max(self._lanes.attempted(), default=-1))

    def _note(self) -> None:
        if self._lanes is None:
            super()._note()

    def _enter_lanes(self) -> None:
        """The one in hand gets a lane."""
        self._note()
        self._lanes = Lanes()
        assert self.cursor - self.done <= 1, "a whole batch is acknowledged before another is taken"
        if self.done < self.cursor:
            self._lanes.add(self.chunk, self.done, self._floor(self.done))
            self._lanes.take()
        self._pass_over(self.cursor)

    def _into_lane(self) -> None:
        assert self._lanes is not None
        self._lanes.add(self.chunk, self.cursor, self._floor(self.cursor))
        self._pass_over(self.cursor + 1)
