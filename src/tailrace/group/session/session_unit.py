"""A unit in a process: the I/O for it, and the acks and nacks of its deliveries.

Two locks: the session's, for everything that is known, is held for moments and never while the
backend is called; the unit's own allows one commit at a time.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from tailrace.backend.contract import Fence, Transaction
from tailrace.delivery.dead_letters.addressing import addressed_to
from tailrace.delivery.delivery import Delivery, record_of
from tailrace.delivery.failed_attempts import read_failed
from tailrace.delivery.fetched import FetchedBatch, Resolution
from tailrace.delivery.handed_out import read_handed_out
from tailrace.errors import Fenced, OutcomeUnknown
from tailrace.group.session.owned_unit import OwnedUnit
from tailrace.group.session.state import SessionState
from tailrace.group.store.dead_letters import commit_dead_letter
from tailrace.group.store.definition import consumer_name, unit_fence
from tailrace.log.control import without_control
from tailrace.topic.ledger import Progress

_log: Final = logging.getLogger("tailrace.group")


class SessionUnit(OwnedUnit):
    """A unit at an epoch. `read` is for the consumer's thread, the other methods for any.

    Implements `tailrace.delivery.fetched.Resolver`.
    """

    def __init__(self, state: SessionState, unit: str, epoch: int) -> None:
        super().__init__(unit, epoch)
        self._state = state
        self._committing = threading.Lock()

    def ack(self, offset: int, wait: bool) -> None:
        """Acknowledge a delivery. With `wait`, return once the acknowledgement is durable."""
        state = self._state
        with state.lock:
            state.machine.ack(self, offset)
        state.resolved()  # also with `wait`: if the commit fails, it is due later
        if wait:
            self.commit()

    def nack(self, offset: int, delay_s: float, reason: str) -> Resolution:
        """Schedule the redelivery of a delivery."""
        state = self._state
        now, now_ms = state.clock.monotonic(), state.clock.now_ms()
        with state.lock:
            resolution = state.machine.nack(
                self, offset, delay_s, now, reason=reason, now_ms=now_ms
            )
        state.resolved()  # it may have been the last delivery in flight of a unit that is drained
        return resolution

    def reject(self, offset: int, reason: str) -> Resolution:
        """Have a delivery fail at once."""
        state = self._state
        now_ms = state.clock.now_ms()
        with state.lock:
            resolution = state.machine.reject(self, offset, reason=reason, now_ms=now_ms)
        state.resolved()
        return resolution

    def load(self) -> None:
        """Load the ledger, if that was not done yet."""
        state = self._state
        group, table = state.machine.group, state.backend.table
        with self._committing:
            if self.cursor is not None:
                return
            progress = Progress.load(table, consumer_name(group), self.partition)
            handed_out = read_handed_out(table, group, self.name)
            failed = read_failed(table, group, self.name).get(self.name, {})
            end = state.backend.log.bounds(self.partition).end if handed_out else 0
            with state.lock:
                events = state.machine.loaded(self, progress, handed_out, end, failed)
            state.post(events)

    def read(self) -> None:
        """Read ahead: feed the next records of the log."""
        state, cursor = self._state, self.cursor
        assert cursor is not None
        machine = state.machine
        start = cursor.read_from
        stop = None if machine.stops is None else machine.stops.get(self.partition, 0)
        chunk = state.backend.log.read(self.partition, start, machine.read_bytes, stop)
        batch = None
        if chunk.next_offset != start:
            # A record that is left out is a gap, which is read over.
            records = addressed_to(chunk.records, machine.group)
            if not machine.options.control:
                records = without_control(records)
            batch = FetchedBatch(self.partition, start, chunk.next_offset, records)
            batch.resolver = self
            batch.decode = state.decoder(self.partition.topic)
        with state.lock:
            machine.fetched(self, batch)

    def inspect(self) -> None:
        """Check if there are more records by now, or never will be."""
        state = self._state
        _, end, sealed = state.backend.log.bounds(self.partition)
        with state.lock:
            state.machine.inspected(self, end, sealed)

    def commit(self) -> None:
        """Commit the acknowledgements. `Fenced` if the unit was granted to another session."""
        state = self._state
        fence = Fence(unit_fence(state.machine.group, self.name), self.epoch)
        with self._committing:
            with state.lock:
                if self.removed:
                    raise Fenced(*fence, None)
                commit = state.machine.start_commit(self)
            if commit is None:
                return
            if commit.writes:
                try:
                    state.backend.commit(Transaction(table=commit.writes, fence=fence))
                except Fenced:
                    self.lose()
                    raise
                state.outage.worked()
            with state.lock:
                events = state.machine.committed(self, commit)
            state.post(events)

    def dead_letter(self, delivery: Delivery[Any], error: str) -> bool:
        """Store a failed delivery as a dead letter and acknowledge it, in one commit.

        False if the delivery is not failed here, or if the unit was granted to another session.
        """
        state, offset = self._state, delivery.offset
        group = state.machine.group
        with self._committing:
            with state.lock:
                if self.removed or self.cursor is None or not self.cursor.is_failed(offset):
                    return False
            try:
                commit_dead_letter(
                    state.backend,
                    group,
                    self.partition,
                    record_of(delivery),
                    error,
                    consumer=state.machine.session,
                    fence=Fence(unit_fence(group, self.name), self.epoch),
                    now_ms=state.clock.now_ms(),
                )
            except (Fenced, OutcomeUnknown):
                # Granted again, by the ledger: if the letter is stored, so is its acknowledgement.
                self.lose()
                return False
            with state.lock:
                state.machine.ack(self, offset)
        state.resolved()
        return True

    def lose(self) -> None:
        """Remove the unit from its session: it was granted to another, or does not exist."""
        machine = self._state.machine
        with self._state.lock:
            events = machine.lost(self)
        if events:
            text = "group %s: %s lost %s, epoch %d: another consumer owns it, or it was deleted"
            _log.info(text, machine.group, machine.session, self.name, self.epoch)
        self._state.post(events)
