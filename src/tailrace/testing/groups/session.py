"""A consumer in one life of a simulated process: what `tailrace.group.session` is in a real one.

It consumes what its process is granted with the same `Holding`, and commits the same ledger under
the same fences, through a store that may fail. Its handler takes virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from tailrace.backend.contract import Fence, Transaction
from tailrace.errors import Fenced
from tailrace.group.definition import unit_fence
from tailrace.group.events import Drained, Event, Lost, Progressed
from tailrace.group.holding import Holding
from tailrace.group.offer import Offer
from tailrace.message import Partition
from tailrace.testing.groups.checks import Checks
from tailrace.testing.groups.ground import Ground
from tailrace.testing.groups.handling import Consuming, Handling
from tailrace.testing.groups.reading import load_holding, read_some
from tailrace.testing.groups.worker import Worker
from tailrace.testing.process import Process
from tailrace.testing.unreliable import UnreliableBackend

RETRY_S: Final = 0.1
"""When to look again whether something can go on that could not."""


class SimulatedSession:
    """Implements what a `Registry` wants of a session: `install`, `drain`, `drop`, `departed`."""

    def __init__(
        self,
        name: str,
        consuming: Consuming,
        process: Process,
        ground: Ground,
        backend: UnreliableBackend,
        worker: Worker,
        checks: Checks,
        until: Callable[[str], float],
        handling: Handling,
        random: Random,
    ) -> None:
        self.id = name
        self.group = consuming.group
        self.gone = False
        self._consuming = consuming
        self._process = process
        self._ground = ground
        self._backend = backend
        self.worker = worker
        self._checks = checks
        self._until = until
        self._handling = handling
        self._random = random
        self._epochs: dict[str, int] = {}
        self._holdings: dict[str, Holding] = {}
        self._news: set[str] = set()
        """Units of which there may be something to read."""
        self._draining: set[str] = set()
        self._committing: set[str] = set()
        self._commit_again: set[str] = set()
        """The units of which more was to be committed while a commit was under way."""
        self._in_hand = 0
        self._pump_due = False
        self._progress_due = False

    @property
    def units(self) -> dict[str, int]:
        """What it owns, with epochs."""
        return dict(self._epochs)

    def owns(self, unit: str) -> bool:
        """Whether it consumes this unit, or is about to."""
        return unit in self._epochs

    def may_hand_out(self, unit: str, epoch: int) -> bool:
        """Whether it would hand out of this unit now, by its own clock."""
        holding = self._holdings.get(unit)
        return (
            holding is not None
            and holding.epoch == epoch
            and not holding.draining
            and self._process.clock.monotonic() < self._until(self.id)
        )

    # What the registry wants.

    def install(self, unit: str, epoch: int) -> None:
        """It owns the unit: read its ledger, then consume."""
        self._epochs[unit] = epoch
        self._load(unit, epoch)

    def drain(self, unit: str, epoch: int) -> None:
        """Finish what is in hand of the unit, and say so."""
        if self._epochs.get(unit) != epoch:
            return
        self._draining.add(unit)
        holding = self._holdings.get(unit)
        if holding is not None:
            holding.drain()
            self._commit_if_drained(unit, holding)

    def drop(self, unit: str, epoch: int) -> None:
        """Forget the unit."""
        if self._epochs.get(unit) == epoch:
            self._forget(unit)

    def departed(self) -> None:
        """It has left, or died, and owns nothing."""
        for unit in list(self._epochs):
            self._forget(unit)
        self.gone = True

    # What happens around it.

    def wake(self, partitions: Iterable[Partition]) -> None:
        """There may be something new in these."""
        units = [str(partition) for partition in partitions]
        if known := [unit for unit in units if unit in self._holdings]:
            self._news.update(known)
            self._pump_soon(0.0)

    def _load(self, unit: str, epoch: int) -> None:
        partition = Partition.parse(unit)

        def work() -> Callable[[], None]:
            attempts = self._consuming.attempts
            holding = load_holding(self._backend, self.group, partition, epoch, attempts)
            return lambda: self._loaded(unit, holding)

        def again() -> None:
            if self._epochs.get(unit) == epoch:
                self._process.after(RETRY_S, lambda: self._load(unit, epoch))

        self.worker.do(work, otherwise=again)

    def _loaded(self, unit: str, holding: Holding) -> None:
        if self._epochs.get(unit) != holding.epoch or self.gone:
            return
        self._holdings[unit] = holding
        self._checks.holds(self, unit, holding.epoch)
        self._news.add(unit)
        if unit in self._draining:
            holding.drain()
            self._commit_if_drained(unit, holding)
        self._pump_soon(0.0)

    def _forget(self, unit: str) -> None:
        epoch = self._epochs.pop(unit)
        self._draining.discard(unit)
        self._news.discard(unit)
        if self._holdings.pop(unit, None) is not None:
            self._checks.holds_no_more(self, unit, epoch)

    # Its loop.

    def _pump_soon(self, delay_s: float) -> None:
        if not self._pump_due and not self.gone:
            self._pump_due = True
            self._process.after(delay_s, self._pump)

    def _pump(self) -> None:
        """Hand out what can be, as many at once as the consumer takes."""
        self._pump_due = False
        now = self._process.clock.monotonic()
        due = []
        for unit, holding in list(self._holdings.items()):
            if self._in_hand >= self._consuming.concurrency:
                return
            if unit in self._news and holding.wants:
                self._feed(unit, holding)
            while self._in_hand < self._consuming.concurrency:
                if now >= self._until(self.id):
                    self._pump_soon(RETRY_S)
                    return
                offer = holding.take(now)
                if offer is None:
                    break
                self._hand_out(unit, holding, offer)
            if holding.must_commit:
                self._commit(unit, holding)
            if holding.due is not None:
                due.append(holding.due)
        if due:
            self._pump_soon(max(min(due) - now, RETRY_S))

    def _feed(self, unit: str, holding: Holding) -> None:
        """Read some records, or find that the partition has ended."""
        chunk, dry, end = read_some(self._ground, holding.partition, holding.read_from)
        if chunk is not None:
            holding.feed(chunk)
        if dry:
            self._news.discard(unit)
        if end is not None:
            holding.end(end)
            self._commit_if_finished(unit, holding)

    def _hand_out(self, unit: str, holding: Holding, offer: Offer) -> None:
        self._in_hand += 1
        again = offer.attempt > 1 or offer.offset < offer.chunk.redelivered_below
        self._checks.handed_out(self, unit, holding.epoch, offer.offset, again)
        takes_s = self._random.uniform(*self._consuming.takes_s)
        self._process.after(takes_s, lambda: self._handled(unit, holding, offer))

    def _handled(self, unit: str, holding: Holding, offer: Offer) -> None:
        self._in_hand -= 1
        again_s = self._handling.call(self, holding.partition, offer)
        if self._holdings.get(unit) is holding:
            self._settle(unit, holding, offer, again_s)
        self._pump_soon(0.0)

    def _settle(self, unit: str, holding: Holding, offer: Offer, again_s: float | None) -> None:
        if again_s is None:
            holding.ack(offer.offset)
        elif not holding.nack(offer.offset, again_s, self._process.clock.monotonic()):
            self._checks.gave_up(self, unit, offer.offset)
        if len(holding.chunk) == holding.cursor:
            self._news.add(unit)
        if holding.draining:
            self._commit_if_drained(unit, holding)
        elif not self._progress_due:
            self._progress_due = True
            self._process.after(self._consuming.progress_interval_s, self._save)
        self._commit_if_finished(unit, holding)

    # Its ledger.

    def _save(self) -> None:
        self._progress_due = False
        for unit, holding in self._holdings.items():
            self._commit(unit, holding)

    def _commit_if_drained(self, unit: str, holding: Holding) -> None:
        if holding.drained:
            self._commit(unit, holding)

    def _commit_if_finished(self, unit: str, holding: Holding) -> None:
        if holding.finished:
            self._commit(unit, holding)

    def _commit(self, unit: str, holding: Holding) -> None:
        """Make durable what was acknowledged, and tell the leader."""
        if unit in self._committing:
            self._commit_again.add(unit)
            return
        self._committing.add(unit)
        self._commit_again.discard(unit)

        def work() -> Callable[[], None]:
            if self._holdings.get(unit) is not holding:
                return lambda: self._committing.discard(unit)
            drained, finished = holding.drained, holding.finished
            writes = holding.writes()
            if writes:
                fence = Fence(unit_fence(self.group, unit), holding.epoch)
                try:
                    self._backend.commit(Transaction(table=writes, fence=fence))
                except Fenced:
                    return lambda: self._lost(unit, holding)
                self._checks.owned(self, unit, holding.epoch)
            mark = holding.mark
            return lambda: self._saved(unit, holding, bool(writes), mark, drained, finished)

        def again() -> None:
            self._committing.discard(unit)
            self._process.after(RETRY_S, lambda: self._retry(unit, holding))

        self.worker.do(work, otherwise=again)

    def _retry(self, unit: str, holding: Holding) -> None:
        if self._holdings.get(unit) is holding:
            self._commit(unit, holding)

    def _saved(
        self, unit: str, holding: Holding, wrote: bool, mark: int, drained: bool, finished: bool
    ) -> None:
        self._committing.discard(unit)
        if self._holdings.get(unit) is not holding:
            return
        if wrote:
            holding.saved()
        event: Event = Progressed(self.id, unit, holding.epoch, mark, finished)
        if drained:
            event = Drained(self.id, unit, holding.epoch, mark)
        self._process.tell(event)
        if unit in self._commit_again or (holding.drained and not drained):
            self._commit(unit, holding)
        self._pump_soon(0.0)

    def _lost(self, unit: str, holding: Holding) -> None:
        """Somebody newer has the unit."""
        self._committing.discard(unit)
        if self._holdings.get(unit) is holding:
            self._forget(unit)
            self._process.tell(Lost(self.id, unit, holding.epoch))
