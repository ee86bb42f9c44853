"""A unit that a session was granted: its ledger, its records, its commits.

Two locks: the session's, for what is known, is held for moments and never while the backend is
asked; the unit's own is for commits, so that there is one at a time.
"""

from __future__ import annotations

import logging
import threading
from enum import Enum
from math import inf
from typing import Final

from tailrace.backend.contract import Fence, Transaction
from tailrace.errors import Fenced
from tailrace.group.chunk import Chunk, Fate
from tailrace.group.definition import consumer_name, unit_fence
from tailrace.group.events import Drained, Lost, Progressed
from tailrace.group.holding import Holding
from tailrace.group.reach import read_reach
from tailrace.group.share import Share
from tailrace.message import Partition
from tailrace.topic.ledger import Progress

_log: Final = logging.getLogger("tailrace.group")


class Need(Enum):
    """What a unit needs to go on."""

    LEDGER = "its ledger is to be read"
    COMMIT = "what it has may be handed out only after a commit"
    READ = "there may be more in the log"
    TURN = "it has something to hand out"
    NOTHING = "something has to happen first"


class Owned:
    """A unit at an epoch. `read` is for the consumer's thread, the rest for any."""

    def __init__(self, share: Share, unit: str, epoch: int) -> None:
        self.name = unit
        self.partition = Partition.parse(unit)
        self.epoch = epoch
        self.holding: Holding | None = None
        """None until its ledger was read."""
        self.gone = False
        """Whether it is ours no more."""
        self.dry = False
        """Whether there was nothing more to read when somebody last looked."""
        self.stuck = False
        """Whether it cannot be read any further; the loop was told why."""
        self.rests_until = -inf
        """When to try again what the backend did not do."""
        self.held_bytes = 0
        """How much it counts for in the round."""
        self.alarms: set[float] = set()
        """When the round is to have it again, whatever happens until then."""
        self._share = share
        self._committing = threading.Lock()
        self._draining = False
        self._watched_at: int | None = None
        self._told: Progressed | None = None
        self._drained_told = False
        self._full_told = False

    def ack(self, offset: int, wait: bool) -> None:
        """See `tailrace.group.chunk.Settling`."""
        share = self._share
        with share.lock:
            holding = self.holding
            plain = holding is None or holding.plain
            if holding is not None and holding.ack(offset):
                share.rota.unsaved.add(self)
                # One that has a plain delivery in hand is in the round, if it does not end.
                if not plain or holding.draining or holding.ended:
                    share.stir(self)
        share.acked()  # also with `wait`: what cannot be committed now is due later
        if wait:
            self.commit()

    def nack(self, offset: int, delay_s: float) -> Fate:
        """See `tailrace.group.chunk.Settling`."""
        share = self._share
        with share.lock:
            if self.holding is None or self.gone:
                return Fate.AGAIN  # for whoever has the unit now
            again = self.holding.nack(offset, delay_s, share.clock.monotonic())
            share.failing |= bool(self.holding.failures)
            share.stir(self)
            share.news()
            if again is None:
                kept = self.holding.draining or self.holding.keeps(offset)
                return Fate.AGAIN if kept else Fate.DONE
            return Fate.AGAIN if again else Fate.FAILED

    def rests(self, now: float) -> bool:
        """Whether it is left alone for a while, because the backend failed."""
        return now < self.rests_until

    def drain(self) -> None:
        """Hand out nothing new of it. With the lock."""
        self._draining = True
        if self.holding is not None:
            self.holding.drain()

    @property
    def ends(self) -> bool:
        """Whether it is time for its final progress. With the lock."""
        if self._draining and not self._drained_told:
            return self.holding is None or self.holding.drained
        if self.holding is None or (self._told is not None and self._told.finished):
            return False
        return self.holding.finished

    def due(self, now: float) -> float:
        """When to look at it again though nothing happened. With the lock."""
        if self.rests(now):
            return self.rests_until
        due = None if self.holding is None else self.holding.due
        return inf if due is None else due

    def wake(self) -> None:
        """There may be more to read, and nobody watches over it any more. With the lock."""
        self.dry = False
        self.unwatch()
        self._share.stir(self)

    def watch(self) -> int | None:
        """The offset to watch it from, if it goes on as soon as more is pushed or its end is known,
        and nobody watches over it. With the lock."""
        holding = self.holding
        if self.gone or holding is None or not self.dry or self.stuck or holding.ended:
            return None
        if self._watched_at == holding.read_from:
            return None
        self._watched_at = holding.read_from
        return self._watched_at

    def unwatch(self) -> None:
        """Nobody watches over it. With the lock."""
        self._watched_at = None

    @property
    def stopped(self) -> bool:
        """Whether it has come to where it was to stop, whatever is behind that. With the lock."""
        stops, holding = self._share.stops, self.holding
        if stops is None or holding is None:
            return False
        return holding.read_from >= stops.get(self.partition, 0)

    @property
    def quiet(self) -> bool:
        """Whether it surely has nothing to hand out."""
        holding = self.holding
        return holding is None or (self.dry and holding.plain and holding.wants)

    @property
    def blocked(self) -> bool:
        """Whether it cannot go on, and the loop was told why. With the lock."""
        holding = self.holding
        if holding is None or not holding.stalled:
            return self.stuck
        return self.stuck or self.dry or not holding.wants

    def load(self) -> None:
        """Read the ledger, if that was not done yet."""
        share = self._share
        with self._committing:
            if self.holding is not None:
                return
            table, terms = share.backend.table, share.terms
            progress = Progress.load(table, consumer_name(share.group), self.partition)
            reach = read_reach(table, share.group, self.name)
            end = share.backend.log.bounds(self.partition).end if reach else 0
            holding = Holding(
                self.partition,
                self.epoch,
                progress,
                group=share.group,
                attempts=terms.attempts,
                records_max=terms.redelivery_records_max,
                bytes_max=terms.prefetch_bytes,
                reach=reach,
                end=end,
            )
            with share.lock:
                self.holding = holding
                if self._draining:
                    holding.drain()
            self._report(progress.mark, finished=False, drained=False)

    def need(self, now: float) -> Need:
        """What comes next for it. With the lock."""
        holding = self.holding
        if self.gone or self.rests(now):
            return Need.NOTHING
        if holding is None:
            return Need.NOTHING if self.stuck else Need.LEDGER
        if holding.ready(now):
            return Need.TURN
        if holding.must_commit:
            return Need.COMMIT
        if holding.wants and not (self.dry or self.stuck):
            return Need.READ
        return Need.NOTHING

    def warn_if_full(self) -> None:
        """Say once that it holds back all it may, and stands still."""
        holding = self.holding
        with self._share.lock:
            if holding is None or holding.draining or holding.wants or not holding.stalled:
                return
            if self._full_told:
                return
            self._full_told = True
        _log.warning(
            "group %s: %s stands still: %d messages are held back behind one that was given back"
            " too often; acknowledge that one, or start the consumer again",
            self._share.group, self.name, holding.held_back - holding.failed,
        )  # fmt: skip

    def read(self) -> None:
        """Feed what comes next in the log; if nothing does, it is dry."""
        share, holding = self._share, self.holding
        assert holding is not None
        if self.stopped:
            self.dry = True
            return
        start, size = holding.read_from, share.read_bytes
        stop = None if share.stops is None else share.stops.get(self.partition, 0)
        records, next_offset = share.backend.log.read(self.partition, start, size, stop)
        if next_offset == start:
            self.dry = True
            return
        chunk = Chunk(self.partition, start, next_offset, records)
        chunk.owner = self
        chunk.decode = share.decoder(self.partition.topic)
        with share.lock:
            if holding.wants:
                holding.feed(chunk)
                share.rota.unsaved.add(self)  # to read over a gap is progress too

    def look(self) -> None:
        """Whether there is more to read by now, or never will be."""
        assert self.holding is not None
        _, end, sealed = self._share.backend.log.bounds(self.partition)
        with self._share.lock:
            at = self.holding.read_from
            if at < end and not self.stopped:
                self.dry = False
                self._share.stir(self)
            elif sealed and at >= end:
                self.holding.end(end)
                self._share.stir(self)

    def commit(self) -> None:
        """Commit what was acknowledged. `Fenced` when the unit has gone to somebody else."""
        share = self._share
        fence = Fence(unit_fence(share.group, self.name), self.epoch)
        with self._committing:
            with share.lock:
                holding = self.holding
                if self.gone:
                    raise Fenced(*fence, None)
                if holding is None:
                    return
                writes = holding.writes()
                mark, finished, drained = holding.mark, holding.finished, holding.drained
            if writes:
                try:
                    share.backend.commit(Transaction(table=writes, fence=fence))
                except Fenced:
                    self.lose()
                    raise
                share.trouble.worked()
                with share.lock:
                    holding.saved()
            self._report(mark, finished=finished, drained=drained)

    def lose(self) -> None:
        """It is ours no more, and the leader may not know that."""
        with self._share.lock:
            lost, self.gone = not self.gone, True
            self._share.news()
        if lost:
            self._share.tell(Lost(self._share.session, self.name, self.epoch))

    def _report(self, mark: int, *, finished: bool, drained: bool) -> None:
        share = self._share
        progressed = Progressed(share.session, self.name, self.epoch, mark, finished)
        if progressed != self._told:
            self._told = progressed
            share.tell(progressed)
        if drained and not self._drained_told:
            self._drained_told = True
            share.tell(Drained(share.session, self.name, self.epoch, mark))
