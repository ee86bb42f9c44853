"""A consumer in one life of a simulated process: it drives the machine of a session.

The machine, its units, scheduler and cursors are those of `tailrace.group.session`. Here are the
driver's parts: virtual time, a worker for the store that may fail, two threads as a real session
has them, and the calls of handlers, which take virtual time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from math import inf
from random import Random
from typing import Final, TypeAlias

from tailrace.delivery.fetched import FetchedRow, Resolution
from tailrace.errors import Fenced
from tailrace.group.protocol.events import Drained, Event, Subscribed, Unsubscribed
from tailrace.group.runtime.contract import SessionRuntime
from tailrace.group.session.machine import SessionMachine, SessionOptions
from tailrace.group.session.owned_unit import UnitStep
from tailrace.message import Partition
from tailrace.testing.groups.checks import Checks
from tailrace.testing.groups.handling import ConsumingOptions, HandlerCaller
from tailrace.testing.groups.storage import SimulatedStorage
from tailrace.testing.groups.thread import Blocking, SimulatedThread
from tailrace.testing.groups.unit_io import SimulatedUnit, SimulatedUnitIO, StoreWork
from tailrace.testing.groups.worker import Answer, Worker
from tailrace.testing.process import Process
from tailrace.testing.unreliable import UnreliableBackend

RETRY_S: Final = 0.1
"""How often a session whose lease has ended checks it again."""
RECORDS_MAX: Final = 64
"""The most records that a unit delivers beyond its committed progress, or holds back. Also the most
that a session reads ahead: a record counts as one byte."""
SOON_S: Final = 0.001
"""The least time between two checks of what is due: clocks drift."""


_Thread: TypeAlias = SimulatedThread[StoreWork]


class SimulatedSession:
    """A session of a simulated process, as its `GroupProgram` uses it."""

    def __init__(
        self,
        name: str,
        consuming: ConsumingOptions,
        process: Process,
        runtime: SessionRuntime,
        storage: SimulatedStorage,
        backend: UnreliableBackend,
        worker: Worker,
        checks: Checks,
        caller: HandlerCaller,
        random: Random,
    ) -> None:
        self.id = name
        self.group = consuming.group
        self.ended = False
        self.consuming = consuming
        self.worker = worker
        self.machine: SessionMachine[SimulatedUnit] = SessionMachine(
            name,
            consuming.group,
            SessionOptions(
                attempts=consuming.attempts,
                redelivery_records_max=RECORDS_MAX,
                prefetch_bytes=RECORDS_MAX,
                revoke_timeout_s=consuming.revoke_timeout_s,
            ),
            make_unit=lambda unit, epoch: SimulatedUnit(self, unit, epoch),
            notify=self._notify,
        )
        self._process = process
        self._runtime = runtime
        self._checks = checks
        self._io = SimulatedUnitIO(self, storage, backend, checks)
        self._caller = caller
        self._random = random
        self._leaving = False
        self._in_flight = 0
        self._notified = False
        self._timer_at = inf
        self._progress_due = False
        self._save_again = False
        self._consumer: _Thread = SimulatedThread(self._consume())
        self._saver: _Thread | None = None

    @property
    def progress_interval_s(self) -> float:
        """How soon progress is saved."""
        return self.consuming.progress_interval_s

    def store_changed(self) -> None:
        """Do nothing: no store entry concerns consumers."""

    def fail(self, error: BaseException) -> None:
        """Raise the error: in a simulation nothing ends a runtime."""
        raise error

    @property
    def units(self) -> dict[str, int]:
        """The units that the session owns, with their epochs."""
        return {owned.name: owned.epoch for owned in self.machine.scheduler.units.values()}

    def may_deliver(self, unit: str, epoch: int) -> bool:
        """True if the session would deliver records of this unit now, by its own clock."""
        owned = self.machine.scheduler.find(unit, epoch)
        return (
            owned is not None
            and owned.cursor is not None
            and not owned.cursor.draining
            and self._now() < self._runtime.until(self.id)
        )

    # What the program calls: a `LocalSession`, and the life of a consumer.

    def start(self) -> None:
        """Join the group."""
        self._runtime.post(Subscribed(self.id, self.group, self.consuming.revoke_timeout_s))
        self._continue(self._consumer)

    def leave(self) -> None:
        """Deliver no more; depart once every delivery in flight is resolved and durable."""
        self._leaving = True
        self._runtime.post(Unsubscribed(self.id))
        self.machine.interrupt()

    def install(self, unit: str, epoch: int) -> None:
        """Own a granted unit."""
        self._checks.acquired(self, unit, epoch)
        self.machine.install(unit, epoch)

    def drain(self, unit: str, epoch: int) -> None:
        """Stop the delivery of a unit, and post `Drained` once no delivery of it is in flight."""
        answer = self.machine.drain(unit, epoch)
        if answer is None:
            self._runtime.save_soon(self.id)
        else:
            self._runtime.post(answer)

    def drop(self, unit: str, epoch: int) -> None:
        """Own a unit no longer."""
        self._checks.released(self, unit, epoch)
        self.machine.drop(unit, epoch)

    def departed(self) -> None:
        """End: the session has left or died."""
        self.ended = True
        self._consumer.end()
        if self._saver is not None:
            self._saver.end()
        for owned in list(self.machine.scheduler.units.values()):
            self._checks.released(self, owned.name, owned.epoch)
            self.machine.scheduler.remove(owned)

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions again: they have more records, or an end."""
        self.machine.wake(partitions)

    def save(self) -> None:
        """Commit all acknowledgements, in a thread of its own."""
        self._progress_due = False
        if self.ended:
            return
        if self._saver is None or self._saver.ended:
            self._saver = SimulatedThread(self._save())
            self._continue(self._saver)
        else:
            self._save_again = True

    # The acknowledgements of handlers.

    def ack(self, owned: SimulatedUnit, offset: int) -> None:
        """Acknowledge a delivery."""
        self.machine.ack(owned, offset)
        self._progress_is_due()

    def nack(self, owned: SimulatedUnit, offset: int, delay_s: float, reason: str) -> Resolution:
        """Schedule the redelivery of a delivery."""
        now, now_ms = self._now(), self._process.clock.now_ms()
        found = self.machine.nack(owned, offset, delay_s, now, reason=reason, now_ms=now_ms)
        self._progress_is_due()
        return found

    def reject(self, owned: SimulatedUnit, offset: int, reason: str) -> Resolution:
        """Have a delivery fail at once."""
        now_ms = self._process.clock.now_ms()
        found = self.machine.reject(owned, offset, reason=reason, now_ms=now_ms)
        self._progress_is_due()
        return found

    # Its threads.

    def _consume(self) -> Generator[StoreWork | None, bool, None]:
        """The consumer's thread: `Session.next`, and a loop over the deliveries."""
        machine = self.machine
        while True:
            if machine.end_turn():
                self._progress_is_due()
            while (failed := machine.pop_failure()) is not None:
                self._checks.gave_up(self, str(failed.batch.partition), failed.offset)
            seen = machine.version
            machine.scheduler.requeue_due(self._now())
            for owned in machine.scheduler.pop_ending(self._now()):
                yield from self._commit(owned)
            until = self._runtime.until(self.id)
            paused = until <= self._now()
            picked = None if paused or self._leaving else machine.scheduler.pick()
            if picked is None:
                if machine.version == seen:
                    self._set_timer(paused)
                    yield None
            elif (yield from self._visit(picked)) and machine.begin_turn(
                picked, until, self._now()
            ):
                self._progress_is_due()
                while (row := machine.take(picked, self._now())) is not None:
                    self._deliver(picked, row)
                    while self._in_flight >= self.consuming.concurrency:
                        yield None

    def _visit(self, owned: SimulatedUnit) -> Blocking[StoreWork]:
        """Do what a unit needs until it can deliver, or has to wait. See `UnitIO.visit`."""
        while True:
            match self.machine.step(owned, self._now()):
                case UnitStep.DELIVER:
                    return not self._leaving
                case UnitStep.WAIT_FOR_MEMORY:
                    return False
                case UnitStep.LOAD:
                    yield StoreWork(owned, lambda: self._io.load(owned))
                case UnitStep.COMMIT:
                    yield StoreWork(owned, lambda: self._io.commit(owned))
                case UnitStep.READ:
                    yield StoreWork(owned, lambda: self._io.read(owned))
                case UnitStep.WAIT:
                    at = owned.watch()
                    if at is not None:
                        self._runtime.await_records(self.id, {owned.partition: at})
                        if not (yield StoreWork(owned, lambda: self._io.inspect(owned))):
                            owned.unwatch()
                    return False

    def _save(self) -> Generator[StoreWork | None, bool, None]:
        """The progress thread: `Session.save`."""
        while True:
            self._save_again, saved = False, True
            for owned in self.machine.pop_unsaved():
                saved = (yield from self._commit(owned)) and saved
            if not saved:
                self._progress_is_due()
            if not self._save_again:
                return

    def _commit(self, owned: SimulatedUnit) -> Blocking[StoreWork]:
        """Commit the progress of a unit. False if that failed."""
        if owned.cursor is None and not (yield StoreWork(owned, lambda: self._io.load(owned))):
            return False
        return (yield StoreWork(owned, lambda: self._io.commit(owned)))

    def _continue(self, thread: _Thread, succeeded: bool = True) -> None:
        """Run a thread until it waits, and have its work with the store done."""
        work = thread.resume(succeeded)
        if work is None:
            return
        owned, act = work

        def reach() -> Answer:
            try:
                effect = act()
            except Fenced:
                return lambda: answered(lambda: self._lose(owned), succeeded=False)
            return lambda: answered(effect, succeeded=True)

        def answered(effect: Answer, *, succeeded: bool) -> None:
            if not self.ended:
                effect()
                self._continue(thread, succeeded)

        def failed() -> None:
            answered(lambda: self.machine.failed(owned, self._now()), succeeded=False)

        self.worker.do(reach, otherwise=failed)

    def _notify(self) -> None:
        """Let the consumer's thread check again, if it waits."""
        if self._consumer.waits and not self._notified:
            self._notified = True
            self._process.after(0.0, self._notice)

    def _notice(self) -> None:
        self._notified = False
        if self._consumer.waits:
            self._continue(self._consumer)

    def _set_timer(self, paused: bool) -> None:
        """Wake the consumer's thread when something is due."""
        now, at = self._now(), self.machine.scheduler.due_at
        if paused and self.machine.scheduler.units:
            at = min(at, now + RETRY_S)
        if at < self._timer_at:
            self._timer_at = at
            self._process.after(max(at - now, SOON_S), lambda: self._timer_ended(at))

    def _timer_ended(self, at: float) -> None:
        if at == self._timer_at:
            self._timer_at = inf
            if self._consumer.waits:
                self._continue(self._consumer)

    def _progress_is_due(self) -> None:
        if not self._progress_due:
            self._progress_due = True
            self._runtime.progress_due(self.id)

    # Its answers to the runtime.

    def _lose(self, owned: SimulatedUnit) -> None:
        self._checks.released(self, owned.name, owned.epoch)
        self.post(self.machine.lost(owned))

    def post(self, events: list[Event]) -> None:
        """Post events to the runtime, checked."""
        for event in events:
            if isinstance(event, Drained):
                self._checks.drained(self, event.unit, self._handled_of(event))
            self._runtime.post(event)

    def _handled_of(self, event: Drained) -> int:
        owned = self.machine.scheduler.find(event.unit, event.epoch)
        return 0 if owned is None else owned.handled

    # Its handlers.

    def _deliver(self, owned: SimulatedUnit, row: FetchedRow) -> None:
        self._in_flight += 1
        owned.handled += 1
        self._checks.delivered(self, owned.name, owned.epoch, row.offset, row.redelivered)
        takes_s = self._random.uniform(*self.consuming.takes_s)
        self._process.after(takes_s, lambda: self._handle(owned, row))

    def _handle(self, owned: SimulatedUnit, row: FetchedRow) -> None:
        """Call the handler, whose time has passed, and resolve the delivery."""
        self._in_flight -= 1
        owned.handled -= 1
        self._caller.call(self, owned.partition, row, owned)
        if self._consumer.waits:
            self._continue(self._consumer)

    def _now(self) -> float:
        return self._process.clock.monotonic()
