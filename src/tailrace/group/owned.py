"""A unit that a session was granted: its ledger, its records, its commits.

Two locks: the session's, for what is known, is held for moments and never while the backend is
asked; the unit's own is for commits, so that there is one at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailrace.backend.contract import Backend, Fence, Transaction
from tailrace.clock import Clock
from tailrace.errors import Fenced
from tailrace.group.chunk import Chunk
from tailrace.group.definition import consumer_name, unit_fence
from tailrace.group.events import Drained, Event, Lost, Progressed
from tailrace.group.holding import Holding
from tailrace.group.reach import read_reach
from tailrace.group.trouble import Trouble
from tailrace.message import Message, Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import READ_BYTES

_NEVER: Final = float("-inf")

_log: Final = logging.getLogger("tailrace.group")


@dataclass(frozen=True, slots=True)
class Terms:
    """How a session consumes."""

    attempts: int
    redelivery_records_max: int
    prefetch_bytes: int
    revoke_timeout_s: float


class Share:
    """What the units of a session have in common, and how they speak to it."""

    def __init__(
        self,
        backend: Backend,
        group: str,
        *,
        session: str,
        terms: Terms,
        clock: Clock,
        decoder: Callable[[str], Callable[[Message[Any]], Any]],
        tell: Callable[[Event], None],
        acked: Callable[[], None],
    ) -> None:
        self.backend = backend
        self.group = group
        self.session = session
        self.terms = terms
        self.clock = clock
        self.decoder = decoder
        self.tell = tell
        self.acked = acked
        self.lock = threading.Condition()
        self.version = 0
        """Another after everything that a waiting consumer should look at."""
        self.limit = _NEVER
        """Up to when deliveries may be handed out; minus infinity once anything changed."""
        self.stops: Mapping[Partition, int] | None = None
        """Offsets to stop at, in these partitions alone; None to go on for ever."""
        self.prefetch_bytes = terms.prefetch_bytes
        self.trouble = Trouble(_log, f"consuming in group {group}")
        """Over with the next commit: there may be much to read where nothing can be written."""

    def news(self) -> None:
        """Have the consumer look again before it hands out any more. With the lock."""
        self.limit = _NEVER
        self.version += 1
        self.lock.notify_all()


class Owned:
    """A unit at an epoch. `next` and `read` are for the consumer's thread, the rest for any."""

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
        self.rests_until = _NEVER
        """When to try again what the backend did not do."""
        self._share = share
        self._committing = threading.Lock()
        self._draining = False
        self._told: Progressed | None = None
        self._drained_told = False
        self._full_told = False

    def ack(self, offset: int, wait: bool) -> None:
        """See `tailrace.group.chunk.Settling`."""
        share = self._share
        with share.lock:
            if self.holding is not None and self.holding.ack(offset) and not self.holding.plain:
                share.news()
        if wait:
            self.commit()
        else:
            share.acked()

    def nack(self, offset: int, delay_s: float) -> None:
        """See `tailrace.group.chunk.Settling`."""
        share = self._share
        with share.lock:
            if self.holding is not None:
                self.holding.nack(offset, delay_s, share.clock.monotonic())
                share.news()

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

    @property
    def awaits(self) -> bool:
        """Whether it goes on as soon as more is pushed, or its end is known. With the lock."""
        return self.dry and self.holding is not None and not (self.stuck or self.holding.ended)

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

    def next(self) -> bool:
        """Whether it has something to hand out, read and allowed for if need be."""
        holding, share = self.holding, self._share
        while holding is not None:
            with share.lock:
                if self.gone:
                    return False
                if holding.ready(share.clock.monotonic()):
                    return True
                must_commit = holding.must_commit
                wants = holding.wants and not (self.dry or self.stuck)
            if must_commit:
                self.commit()
            elif wants:
                self.read()
            else:
                self._warn_if_full(holding)
                break
        return False

    def _warn_if_full(self, holding: Holding) -> None:
        with self._share.lock:
            full = holding.stalled and not holding.wants and not holding.draining
            if not full or self._full_told:
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
        start = holding.read_from
        stop = None if share.stops is None else share.stops.get(self.partition, 0)
        if stop is not None and start >= stop:
            self.dry = True
            return
        size = max(1, min(READ_BYTES, share.prefetch_bytes))
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

    def look(self) -> None:
        """Whether there is more to read by now, or never will be."""
        assert self.holding is not None
        _, end, sealed = self._share.backend.log.bounds(self.partition)
        with self._share.lock:
            at = self.holding.read_from
            stops = self._share.stops
            if at < end and (stops is None or at < stops.get(self.partition, 0)):
                self.dry = False
                self._share.news()
            elif sealed and at >= end:
                self.holding.end(end)
                self._share.news()

    def commit(self) -> None:
        """Commit what was acknowledged. `Fenced` when the unit has gone to somebody else."""
        share = self._share
        fence = Fence(unit_fence(share.group, self.name), self.epoch)
        with self._committing:
            with share.lock:
                holding = self.holding
                if self.gone:
                    raise Fenced(*fence, self.epoch)
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
