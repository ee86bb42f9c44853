"""The decisions of a session: which unit has its turn, what it does next, what is committed.

Pure: no lock, thread, clock or backend, and so the same in a process and in a simulation. A driver
calls the machine, one call at a time; it does the I/O that the machine asks for, and brings the
result back: `loaded`, `fetched`, `inspected`, `committed`, or `lost` and `failed`. Calls that
return events do so for the driver to post them to the runtime.

A driver's loop is: `end_turn`, `requeue_due`, commit the progress of `pop_ending`, `pick` a unit
and do its `step` until that is `DELIVER`, then `begin_turn` and deliver the rows of the unit's
cursor before the clock reaches `limit`. Without a unit it waits for `notify`, or until `due_at`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic

from tailrace.delivery.cursor import Cursor
from tailrace.delivery.cursor_progress import UnitCommit
from tailrace.delivery.failed_attempts import FailedAttempt
from tailrace.delivery.fetched import FetchedBatch, FetchedRow, Resolution
from tailrace.group.protocol.events import Drained, Event, Lost, Progressed
from tailrace.group.session.owned_unit import UnitStep
from tailrace.group.session.scheduler import Scheduler, U
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import READ_BYTES

TURN_S: Final = 0.01
"""How long a unit delivers before the next one has its turn."""
BACKOFF_S: Final = 0.2
"""How long a unit waits before it retries after the backend failed."""
READ_BYTES_MIN: Final = 64 << 10
"""The least that a unit reads at once, however many others read too, unless `prefetch_bytes` is
less."""
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a session consumes. Without `control`, control records are not delivered."""

    attempts: int
    redelivery_records_max: int
    prefetch_bytes: int
    revoke_timeout_s: float
    control: bool = False


class SessionMachine(Generic[U]):
    """The units of one session, and the decisions about them.

    `make_unit` makes the unit of a name and an epoch. `notify` is called when a driver that waits
    has something to do.
    """

    def __init__(
        self,
        session: str,
        group: str,
        options: SessionOptions,
        *,
        make_unit: Callable[[str, int], U],
        notify: Callable[[], None],
    ) -> None:
        self.session = session
        self.group = group
        self.options = options
        self.scheduler: Scheduler[U] = Scheduler(options.prefetch_bytes)
        self.limit = _NEVER
        """Until when the unit that has its turn may deliver; minus infinity once anything
        changed."""
        self.version = 0
        """Increased by every event that a waiting driver has to check."""
        self.stops: Mapping[Partition, int] | None = None
        """The offsets to stop at, in these partitions alone; None to continue for ever."""
        self._attempts: int | None = options.attempts
        self._make_unit = make_unit
        self._notify = notify
        self._turn: U | None = None
        self._failing = False

    # What the runtime grants and revokes.

    def install(self, unit: str, epoch: int) -> None:
        """Add a granted unit."""
        self.scheduler.add(self._make_unit(unit, epoch))
        self.interrupt()

    def drain(self, unit: str, epoch: int) -> Drained | None:
        """Stop the delivery of a unit.

        Once no delivery of it is in flight, the commit of its final progress returns `Drained`. It
        is returned at once if the session does not own the unit.
        """
        owned = self.scheduler.find(unit, epoch)
        if owned is None:
            return Drained(self.session, unit, epoch, 0)
        owned.drain()
        self.scheduler.must_save(owned)
        self._requeue(owned)
        self.interrupt()
        return None

    def drop(self, unit: str, epoch: int) -> None:
        """Remove a unit that the session does not own any more."""
        self.scheduler.remove(self.scheduler.find(unit, epoch))
        self.interrupt()

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions again: they have more records, or an end. Nothing watches them
        any more."""
        for partition in partitions:
            owned = self.scheduler.units.get(str(partition))
            if owned is not None:
                owned.caught_up = False
                owned.unwatch()
                self._requeue(owned)
        self.interrupt()

    def interrupt(self) -> None:
        """End the turn, and have the driver check everything again."""
        self.limit = _NEVER
        self.version += 1
        self._notify()

    def limit_attempts(self, attempts: int | None) -> None:
        """Deliver a record at most this number of times from now on; None for no end."""
        self._attempts = attempts
        for cursor in self.scheduler.cursors.values():
            cursor.attempts = attempts

    # The turns.

    def pop_failure(self) -> FetchedRow | None:
        """Return a record that used up its attempts, once."""
        if self._failing:
            for cursor in self.scheduler.cursors.values():
                if cursor.failures:
                    return cursor.failures.popleft()
            self._failing = False
        return None

    def step(self, owned: U, now: float) -> UnitStep:
        """Return what a unit from the ready queue does next.

        With `DELIVER` the unit's turn may begin. With `WAIT` the unit has left the queue, and with
        `WAIT_FOR_MEMORY` it is last in the queue. For the others, the driver does the I/O and calls
        this again.
        """
        while True:
            step = owned.step(now)
            if step is UnitStep.WAIT:
                if owned.cursor is not None:
                    owned.cursor.forget_batch()
                self.scheduler.retire(owned, now)
                return step
            self.scheduler.put(owned)
            if step is not UnitStep.READ:
                return step
            if not self.scheduler.has_room:
                return UnitStep.WAIT_FOR_MEMORY
            if not self.at_stop(owned):
                return step
            owned.caught_up = True

    def begin_turn(self, owned: U, until: float, now: float) -> bool:
        """Let a unit deliver for a while, at most until a time. False if it was removed."""
        if owned.removed:
            return False
        self._turn = owned
        self.limit = min(until, now + TURN_S)
        return True

    def end_turn(self) -> bool:
        """Put the unit that had its turn back into the ready queue. False if there is none."""
        owned, self._turn = self._turn, None
        if owned is None or owned.cursor is None or owned.removed:
            return False
        owned.cursor.forget_batch()
        self.scheduler.must_save(owned)
        self.scheduler.put(owned)
        self.scheduler.requeue(owned)
        return True

    def take(self, owned: U, now: float) -> FetchedRow | None:
        """Return the next record of the unit that has its turn; None if the turn is over."""
        if now >= self.limit or owned.removed or owned.cursor is None:
            return None
        return owned.cursor.take(now)

    def ack(self, owned: U, offset: int) -> None:
        """Acknowledge a delivery, if it is in flight, or skip a failed one."""
        cursor = owned.cursor
        plain = cursor is None or cursor.plain
        if cursor is not None and cursor.ack(offset):
            self.scheduler.must_save(owned)
            if cursor.read_again_from is not None:
                owned.caught_up = False
                owned.unwatch()
            # A unit with a plain delivery in flight is in the ready queue, unless it ends.
            if not plain or cursor.draining or cursor.ended:
                self._requeue(owned)

    def nack(
        self,
        owned: U,
        offset: int,
        delay_s: float,
        now: float,
        *,
        reason: str = "",
        now_ms: int = 0,
    ) -> Resolution:
        """Schedule the redelivery of a delivery that is in flight. The reason is stored with the
        next commit, for people."""
        cursor = owned.cursor
        if cursor is None or owned.removed:
            return Resolution.NACKED  # the new owner redelivers it
        again = cursor.nack(offset, delay_s, now)
        if again is not None:
            next_ms = now_ms + int(delay_s * 1000) if again else None
            cursor.record_failure(offset, reason, self.session, now_ms, next_ms)
        return self._nacked(owned, cursor, offset, again)

    def reject(self, owned: U, offset: int, *, reason: str = "", now_ms: int = 0) -> Resolution:
        """Have a delivery that is in flight fail at once, as after its last attempt."""
        cursor = owned.cursor
        if cursor is None or owned.removed:
            return Resolution.NACKED
        again: bool | None = None
        if cursor.reject(offset):
            again = False
            cursor.record_failure(offset, reason, self.session, now_ms, None)
        return self._nacked(owned, cursor, offset, again)

    def _nacked(self, owned: U, cursor: Cursor, offset: int, again: bool | None) -> Resolution:
        self.scheduler.must_save(owned)
        self._failing |= bool(cursor.failures)
        self._requeue(owned)
        self.interrupt()
        if again is None:
            kept = cursor.draining or cursor.keeps(offset)
            return Resolution.NACKED if kept else Resolution.ACKED
        return Resolution.NACKED if again else Resolution.FAILED

    def release(self) -> None:
        """Wait for no ack or nack of the deliveries in flight, of all units. Only to leave."""
        for owned in self.scheduler.units.values():
            if owned.cursor is not None:
                owned.cursor.release()
                self.scheduler.requeue(owned)

    # The results of I/O.

    def loaded(
        self,
        owned: U,
        progress: Progress,
        handed_out: int,
        end: int,
        failed: Mapping[int, FailedAttempt],
    ) -> list[Event]:
        """Begin to consume a unit where its ledger is. See `CursorProgress`, `FailedAttempts`."""
        options = self.options
        cursor = Cursor(
            owned.partition,
            owned.epoch,
            progress,
            group=self.group,
            attempts=self._attempts,
            records_max=options.redelivery_records_max,
            bytes_max=options.prefetch_bytes,
            handed_out=handed_out,
            end=end,
            failed=failed,
        )
        owned.loaded(cursor)
        return self._report(owned, progress.mark, finished=False, drained=False)

    @property
    def read_bytes(self) -> int:
        """How much a unit should read now, so that all units that read get some."""
        wanted = self.options.prefetch_bytes // max(1, self.scheduler.size)
        return min(max(wanted, READ_BYTES_MIN), READ_BYTES, self.options.prefetch_bytes)

    def fetched(self, owned: U, batch: FetchedBatch | None) -> None:
        """Feed the batch that was read from `read_from` of the unit's cursor; None for none."""
        assert owned.cursor is not None
        if batch is None:
            owned.caught_up = True
        elif owned.cursor.wants:
            owned.cursor.feed(batch)
            self.scheduler.must_save(owned)  # to read over a gap is progress too

    def at_stop(self, owned: U) -> bool:
        """True if a unit has reached the offset to stop at, whatever records follow."""
        if self.stops is None or owned.cursor is None:
            return False
        return owned.cursor.read_from >= self.stops.get(owned.partition, 0)

    def inspected(self, owned: U, end: int, sealed: bool) -> None:
        """Record the end offset of a unit that is watched, and if it is final."""
        assert owned.cursor is not None
        at = owned.cursor.read_from
        if at < end and not self.at_stop(owned):
            owned.caught_up = False
            self._requeue(owned)
        elif sealed and at >= end:
            owned.cursor.end(end)
            self._requeue(owned)

    def pop_unsaved(self) -> list[U]:
        """Return the units that may have acknowledgements to commit. The caller commits them."""
        if self._turn is not None:
            self.scheduler.must_save(self._turn)  # its plain deliveries call no `ack`
        return self.scheduler.pop_unsaved()

    def start_commit(self, owned: U) -> UnitCommit | None:
        """Return the entries to commit for a unit; None if its ledger was not loaded.

        One commit of a unit at a time: this, the commit of the entries, if there are any, and
        `committed`.
        """
        return None if owned.cursor is None else owned.cursor.start_commit()

    def committed(self, owned: U, commit: UnitCommit) -> list[Event]:
        """Record that the entries of a commit are durable."""
        assert owned.cursor is not None
        if commit.writes:
            owned.cursor.saved()
        return self._report(owned, commit.mark, finished=commit.finished, drained=commit.drained)

    def lost(self, owned: U) -> list[Event]:
        """Remove a unit whose commit was refused: the leader may not know that it has moved."""
        if owned.removed:
            return []
        self.scheduler.remove(owned)
        self.interrupt()
        return [Lost(self.session, owned.name, owned.epoch)]

    def failed(self, owned: U, now: float) -> None:
        """Have a unit retry later: the backend failed. Its progress is committed later."""
        owned.retry_at = now + BACKOFF_S
        self.scheduler.retire(owned, now)
        self.scheduler.must_save(owned)

    def newly_stalled(self, owned: U) -> bool:
        """True, once, if a unit holds as many failed records as it may."""
        cursor = owned.cursor
        if cursor is None or cursor.draining or cursor.wants or not cursor.stalled:
            return False
        first, owned.full_reported = not owned.full_reported, True
        return first

    def _report(self, owned: U, mark: int, *, finished: bool, drained: bool) -> list[Event]:
        events: list[Event] = []
        progressed = Progressed(self.session, owned.name, owned.epoch, mark, finished)
        if progressed != owned.reported:
            owned.reported = progressed
            events.append(progressed)
        if drained and not owned.drain_reported:
            owned.drain_reported = True
            events.append(Drained(self.session, owned.name, owned.epoch, mark))
        return events

    def _requeue(self, owned: U) -> None:
        """Have a waiting driver check a unit to which something happened."""
        if self.scheduler.requeue(owned):
            self.version += 1
            self._notify()
