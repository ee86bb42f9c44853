"""A consumer of a group in a process: it drives the machine of a session.

The runtime grants and revokes units, and receives events. The backend is called in the consumer's
own thread, in the runtime's progress thread (`save`), or in the thread of a user that waits for an
acknowledgement; never in a call that must not block.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.delivery.cursor import Cursor
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.fetched import DeliveryCounts, FetchedRow
from tailrace.errors import BackendUnavailable, DeliveryFailed, HubClosed
from tailrace.group.protocol.events import Died, Event, Subscribed, Unsubscribed
from tailrace.group.runtime.contract import SessionRuntime
from tailrace.group.session.machine import SessionOptions
from tailrace.group.session.session_reporter import SessionReporter
from tailrace.group.session.session_unit import SessionUnit
from tailrace.group.session.state import SessionState
from tailrace.group.session.unit_io import UnitIO
from tailrace.group.store import presence
from tailrace.group.store.failed_messages import record_failed
from tailrace.message import Message, Partition
from tailrace.reporting.reporters import reporters_of

_IDLE_S: Final = 60.0
"""The longest wait for an event before everything is checked again."""
_PAUSED_S: Final = 0.05
"""How often a session whose lease has ended checks it again."""
_LEAVE_S: Final = 2.0
"""The longest time that a session waits for the leader's answer when it leaves."""
_FINISH_S: Final = 0.8
"""The part of `_LEAVE_S` in which deliveries in flight may still be acknowledged."""

_log: Final = logging.getLogger("tailrace.group")


class Session:
    """One subscription of one consumer to a group. One thread at a time calls `next` and `take`."""

    def __init__(
        self,
        backend: Backend,
        group: str,
        *,
        name: str,
        options: SessionOptions,
        clock: Clock,
        decoder: Callable[[str], Callable[[Message[Any]], Any]],
    ) -> None:
        self.id = name
        self.group = group
        self.state = SessionState(
            backend,
            group,
            session=name,
            options=options,
            make_unit=SessionUnit,
            clock=clock,
            decoder=decoder,
            post=self._post,
            resolved=self._progress_is_due,
        )
        self.machine = self.state.machine
        self._runtime: SessionRuntime | None = None
        self._io = UnitIO(
            self.state, lambda offsets: self._joined_runtime().await_records(self.id, offsets)
        )
        self._stopping = self._departed = False
        self._error: BaseException | None = None
        self._paused = self._due = False
        self._records_failures = True
        self._reporter = SessionReporter(
            group, self.machine.scheduler, lock=self.state.lock, unready=self._unready
        )

    def install(self, unit: str, epoch: int) -> None:
        """Own a granted unit."""
        _log.info("group %s: %s was granted to %s, epoch %d", self.group, unit, self.id, epoch)
        with self.state.lock:
            self._reporter.granted += 1
            self.machine.install(unit, epoch)

    def drain(self, unit: str, epoch: int) -> None:
        """Stop the delivery of a unit, and post `Drained` once no delivery of it is in flight."""
        _log.info("group %s: %s is revoked from %s, epoch %d", self.group, unit, self.id, epoch)
        with self.state.lock:
            self._reporter.revoked += 1
            answer = self.machine.drain(unit, epoch)
        if answer is None:
            self._joined_runtime().save_soon(self.id)
        else:
            self._post(answer)

    def drop(self, unit: str, epoch: int) -> None:
        """Own a unit no longer: nothing more is committed for it."""
        _log.info("group %s: %s no longer owns %s, epoch %d", self.group, self.id, unit, epoch)
        with self.state.lock:
            self.machine.drop(unit, epoch)

    def departed(self) -> None:
        """Record that the leader knows that the session has left."""
        with self.state.lock:
            self._departed = True
            self.machine.interrupt()

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions again: they have more records, or an end."""
        with self.state.lock:
            self.machine.wake(partitions)

    def store_changed(self) -> None:
        """Do nothing: no store entry concerns consumers."""

    def fail(self, error: BaseException) -> None:
        """Have `next` raise this error: the runtime has ended."""
        with self.state.lock:
            self._error = error
            self.machine.interrupt()

    def save(self) -> None:
        """Commit all acknowledgements. Those that the backend did not commit are tried again."""
        with self.state.lock:
            self._due = False
        if not self.commit():
            self._progress_is_due()

    def start(self, join: Callable[[Session], SessionRuntime]) -> None:
        """Join the group."""
        self._runtime = join(self)
        _log.info("group %s: %s joined", self.group, self.id)
        self._post(Subscribed(self.id, self.group, self.machine.options.revoke_timeout_s))
        reporters_of(self.state.backend).add(self._reporter)

    def next(
        self, timeout_s: float | None = None, abandoned: threading.Event | None = None
    ) -> SessionUnit | None:
        """Return a unit that can deliver, until `machine.limit`. None if there was none in time,
        after `stop`, or once `abandoned` is set.

        Raises `DeliveryFailed` for a delivery that used up its attempts, and the error that makes a
        unit unreadable, once each; the other keys and units continue.
        """
        state, machine = self.state, self.machine
        deadline = None if timeout_s is None else state.clock.monotonic() + timeout_s
        self._end_turn()
        while True:
            with state.lock:
                if self._error is not None:
                    raise self._error
                if self._stopping or (abandoned is not None and abandoned.is_set()):
                    return None
                failed = machine.pop_failure()
                seen = machine.version
                machine.scheduler.requeue_due(state.clock.monotonic())
            if failed is not None:
                raise self._failure(failed)
            self._io.end()
            until = self._joined_runtime().until(self.id)
            self._paused = until <= state.clock.monotonic()
            with state.lock:
                owned = None if self._paused else machine.scheduler.pick()
            if owned is None:
                if not self._sleep(seen, deadline):
                    return None
            elif self._io.visit(owned) and self._begin_turn(owned, until):
                return owned

    def take(self, owned: SessionUnit) -> FetchedRow | None:
        """Return the next record of a unit that is not plain. None if its turn is over."""
        with self.state.lock:
            return self.machine.take(owned, self.state.clock.monotonic())

    def commit(self) -> bool:
        """Commit all acknowledgements. False if some could not be committed."""
        return self._io.save()

    def begin_handling(self, attempts: int | None, *, records_failures: bool) -> None:
        """Deliver a message at most this number of times, None for no end.

        With `records_failures` a message that used up its attempts is recorded at once, for
        operators; without, the caller resolves it.
        """
        with self.state.lock:
            self._records_failures = records_failures
            self.machine.limit_attempts(attempts)

    def dead_letter(self, delivery: Delivery[Any], error: str) -> bool:
        """Store a failed delivery as a dead letter and acknowledge it, in one commit.

        False if the partition was granted again meanwhile: the message will be redelivered.
        """
        name = str(Partition(delivery.topic, delivery.storage, delivery.partition))
        with self.state.lock:
            owned = self.machine.scheduler.units.get(name)
        return owned is not None and owned.dead_letter(delivery, error)

    def rest(self, seconds: float) -> None:
        """Wait, at most until the session is to end."""
        with self.state.lock:
            self.state.lock.wait_for(lambda: self._stopping or self._error is not None, seconds)

    @property
    def ended(self) -> bool:
        """True if the runtime has ended, or has refused the session: `next` raises its error."""
        return self._error is not None

    def stop(self) -> None:
        """End the wait of `next`. Any thread may call it, also in a signal handler."""
        with self.state.lock:
            self._stopping = True
            self.machine.interrupt()

    @property
    def stopping(self) -> bool:
        """True after `stop`."""
        return self._stopping

    @property
    def idle(self) -> bool:
        """True if there is no record to deliver, as far as is known."""
        with self.state.lock:
            return self.machine.scheduler.idle

    @property
    def blocked(self) -> set[Partition]:
        """The partitions that cannot continue; the reasons were raised by `next`."""
        with self.state.lock:
            units = self.machine.scheduler.units.values()
            return {owned.partition for owned in units if owned.blocked}

    def interrupt(self) -> None:
        """Have a `next` that waits check again. Any thread may call it."""
        with self.state.lock:
            self.machine.interrupt()

    def leave(self, *, release: bool) -> None:
        """Leave the group. Every acknowledgement is durable then, unless that takes more than two
        seconds plus the time of a commit that waits for the backend.

        Deliveries in flight are released: at once with `release`, otherwise unless they are
        acknowledged soon.
        """
        state, machine = self.state, self.machine
        now = state.clock.monotonic()
        release_at, deadline = now if release else now + _FINISH_S, now + _LEAVE_S
        self._end_turn()
        self._post(Unsubscribed(self.id))
        try:
            while not self._departed and self._error is None and now < deadline:
                with state.lock:
                    seen, now = machine.version, state.clock.monotonic()
                    machine.scheduler.requeue_due(now)
                    if now >= release_at:
                        machine.release()
                        release_at = deadline
                self._io.end()
                self._sleep(seen, release_at)
        except HubClosed:
            pass
        finally:
            self._depart()

    def _depart(self) -> None:
        """End the session, in any state."""
        runtime, state = self._joined_runtime(), self.state
        if not self._departed:
            runtime.post(Died(self.id))
        with state.lock:
            for owned in list(self.machine.scheduler.units.values()):
                self.machine.scheduler.remove(owned)
        reporters_of(state.backend).retire(self._reporter)
        with contextlib.suppress(BackendUnavailable):
            presence.leave(state.backend, self.group, self.id)
        runtime.leave(self.id)
        _log.info("group %s: %s left", self.group, self.id)

    def _unready(self) -> str | None:
        if self._error is not None or self._stopping:
            return f"the consumer of group {self.group} ends"
        if self._joined_runtime().until(self.id) <= self.state.clock.monotonic():
            return f"the consumer of group {self.group} has not joined"
        return None

    @property
    def cursors(self) -> dict[Partition, Cursor]:
        """The cursors of the units whose ledgers were loaded. With the lock of `state`."""
        return self.machine.scheduler.cursors

    @property
    def counts(self) -> DeliveryCounts:
        """The number of deliveries, acks and nacks of this session."""
        with self.state.lock:
            return self.machine.scheduler.counts

    def _begin_turn(self, owned: SessionUnit, until: float) -> bool:
        """Let a unit deliver for a while. False if it was removed, or the session ends."""
        state = self.state
        with state.lock:
            if self._stopping or self._error is not None:
                return False
            if not self.machine.begin_turn(owned, until, state.clock.monotonic()):
                return False
        self._progress_is_due()
        return True

    def _end_turn(self) -> None:
        with self.state.lock:
            ended = self.machine.end_turn()
        if ended:
            self._progress_is_due()

    def _sleep(self, seen: int, deadline: float | None) -> bool:
        """Wait for an event, or until something is due. False if the deadline has passed."""
        state, machine = self.state, self.machine
        with state.lock:
            now = state.clock.monotonic()
            times = [now + _IDLE_S if deadline is None else deadline, machine.scheduler.due_at]
            if self._paused and machine.scheduler.units:
                times.append(now + _PAUSED_S)
            state.lock.wait_for(lambda: machine.version != seen, max(0.0, min(times) - now))
        return deadline is None or state.clock.monotonic() < deadline

    def _failure(self, failed: FetchedRow) -> DeliveryFailed:
        """Return the error for a record that used up its attempts, recorded for operators."""
        state = self.state
        error = DeliveryFailed(Delivery.failed(*failed), self.group)
        if self._records_failures:
            self.commit()
            record_failed(state.backend, self.group, self.id, error, state.clock.now_ms())
        return error

    def _progress_is_due(self) -> None:
        if not self._due:
            self._due = True
            self._joined_runtime().progress_due(self.id)

    def _post(self, event: Event) -> None:
        self._joined_runtime().post(event)

    def _joined_runtime(self) -> SessionRuntime:
        assert self._runtime is not None, "a session is started before it is used"
        return self._runtime
