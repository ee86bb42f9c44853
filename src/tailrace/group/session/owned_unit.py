"""The state of a unit that a session was granted. Pure: no lock, thread, clock or backend."""

from __future__ import annotations

from enum import Enum
from math import inf

from tailrace.delivery.cursor import Cursor
from tailrace.group.protocol.events import Progressed
from tailrace.message import Partition


class UnitStep(Enum):
    """What a unit does next."""

    LOAD = "load its ledger"
    COMMIT = "commit, so that more records may be delivered"
    READ = "read ahead"
    DELIVER = "deliver"
    WAIT_FOR_MEMORY = "read ahead when other units have delivered"
    WAIT = "wait for an event"


class OwnedUnit:
    """A unit at an epoch. With the lock of its session, if threads share that."""

    def __init__(self, unit: str, epoch: int) -> None:
        self.name = unit
        self.partition = Partition.parse(unit)
        self.epoch = epoch
        self.cursor: Cursor | None = None
        """None until the ledger was loaded."""
        self.removed = False
        """True once the session does not own the unit any more."""
        self.caught_up = False
        """True if the last read found no more records."""
        self.unreadable = False
        """True if the unit cannot be read any further; the error was raised to the consumer."""
        self.retry_at = -inf
        """When to retry after the backend failed."""
        self.held_bytes = 0
        """The part of the scheduler's `held_bytes` that this unit accounts for."""
        self.timers: set[float] = set()
        """The times at which the scheduler puts the unit back into the ready queue."""
        self.reported: Progressed | None = None
        """The progress that was posted last."""
        self.drain_reported = False
        """True once `Drained` was posted."""
        self.full_reported = False
        """True once a warning was logged that the unit holds back all it may."""
        self._draining = False
        self._watched_at: int | None = None

    def loaded(self, cursor: Cursor) -> None:
        """Use the cursor that was made from the ledger."""
        self.cursor = cursor
        if self._draining:
            cursor.drain()

    def drain(self) -> None:
        """Deliver no more records of the unit."""
        self._draining = True
        if self.cursor is not None:
            self.cursor.drain()

    def backs_off(self, now: float) -> bool:
        """True if the unit does not retry yet after the backend failed."""
        return now < self.retry_at

    @property
    def ends(self) -> bool:
        """True if the final progress of the unit is to be committed and posted."""
        if self._draining and not self.drain_reported:
            return self.cursor is None or self.cursor.drained
        if self.cursor is None or (self.reported is not None and self.reported.finished):
            return False
        return self.cursor.finished

    def due(self, now: float) -> float:
        """Return when to check the unit again although nothing happened; infinity for never."""
        if self.backs_off(now):
            return self.retry_at
        due = None if self.cursor is None else self.cursor.due
        return inf if due is None else due

    def step(self, now: float) -> UnitStep:
        """Return what the unit does next."""
        cursor = self.cursor
        if self.removed or self.backs_off(now):
            return UnitStep.WAIT
        if cursor is None:
            return UnitStep.WAIT if self.unreadable else UnitStep.LOAD
        if cursor.ready(now):
            return UnitStep.DELIVER
        if cursor.must_commit:
            return UnitStep.COMMIT
        if cursor.wants and not (self.caught_up or self.unreadable):
            return UnitStep.READ
        return UnitStep.WAIT

    def watch(self) -> int | None:
        """Return the offset from which the unit is to be watched for new records or its end.

        None if the unit does not wait for records, or is watched from there already.
        """
        cursor = self.cursor
        if self.removed or cursor is None or not self.caught_up or self.unreadable or cursor.ended:
            return None
        if self._watched_at == cursor.read_from:
            return None
        self._watched_at = cursor.read_from
        return self._watched_at

    def unwatch(self) -> None:
        """Record that the unit is not watched any more."""
        self._watched_at = None

    @property
    def quiet(self) -> bool:
        """True if the unit surely has no record to deliver."""
        cursor = self.cursor
        return cursor is None or (self.caught_up and cursor.plain and cursor.wants)

    @property
    def blocked(self) -> bool:
        """True if the unit cannot continue, and the reason was raised to the consumer."""
        cursor = self.cursor
        if cursor is None or not cursor.stalled:
            return self.unreadable
        return self.unreadable or self.caught_up or not cursor.wants
