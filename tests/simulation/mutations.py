"""The safeguards of groups, each removed, to prove that the simulator notices.

A mutation replaces one method for the time of a test; the code itself knows nothing of it.
"""

from __future__ import annotations

import pytest

from tailrace.delivery.cursor_progress import UnitCommit
from tailrace.group.protocol.borrower.units import BorrowedUnit, BorrowedUnits
from tailrace.group.protocol.leader.assignments import Assignments, UnitAssignment
from tailrace.group.protocol.registry import Registry
from tailrace.group.protocol.times import Resend
from tailrace.group.protocol.unit import Unit, UnitState
from tailrace.group.session.machine import SessionMachine
from tailrace.group.session.owned_unit import OwnedUnit
from tailrace.group.session.scheduler import Scheduler
from tailrace.group.store import streams
from tailrace.testing.memory.store import MemoryStore

LATE_S = 5.0


def without_the_epoch_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages about an earlier grant are accepted for the present grant."""

    def of(self: Assignments, borrower: str, unit: str, epoch: int) -> UnitAssignment | None:
        assignment = self.get(unit)
        return assignment if assignment is not None and assignment.borrower == borrower else None

    def having(self: BorrowedUnits, unit: str, epoch: int) -> BorrowedUnit | None:
        return self._units.get(unit)

    right = BorrowedUnits.is_new

    def is_new(self: BorrowedUnits, unit: str, epoch: int) -> bool:
        return unit not in self or right(self, unit, epoch)

    monkeypatch.setattr(Assignments, "of", of)
    monkeypatch.setattr(BorrowedUnits, "of", having)
    monkeypatch.setattr(BorrowedUnits, "is_new", is_new)


def without_the_resend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message without an answer is not sent again."""

    def due(self: Resend, now: float) -> bool:
        if now < self.at:
            return False
        self.at = float("inf")
        return True

    monkeypatch.setattr(Resend, "due", due)


def without_the_early_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A borrower continues to deliver for a while after it should have stopped."""
    right = Registry.until
    monkeypatch.setattr(Registry, "until", lambda self, session: right(self, session) + LATE_S)


def without_the_parent_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit may be granted before those that it follows are finished."""
    right = streams._unit

    def unit(view: streams.StreamView) -> Unit:
        found = right(view)
        return found._replace(state=UnitState.OPEN) if found.state is UnitState.WAITING else found

    monkeypatch.setattr(streams, "_unit", unit)


def without_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write under an epoch that has ended is accepted."""
    monkeypatch.setattr(MemoryStore, "check_fence", lambda self, fence: None)


def without_the_turn_of_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler skips a unit for ever: it came back while another waited for its turn."""
    right = Scheduler.requeue

    def requeue(self: Scheduler[OwnedUnit], owned: OwnedUnit) -> bool:
        return False if self.size else right(self, owned)

    monkeypatch.setattr(Scheduler, "requeue", requeue)


def without_the_unit_of_an_ack(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acknowledgement is recorded for another unit of the same session."""
    right = SessionMachine.ack

    def ack(self: SessionMachine[OwnedUnit], owned: OwnedUnit, offset: int) -> None:
        units = self.scheduler.units.values()
        right(self, next((unit for unit in units if unit is not owned), owned), offset)

    monkeypatch.setattr(SessionMachine, "ack", ack)


def without_the_wait_of_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit is reported as drained while messages of it are in flight."""
    right = SessionMachine.start_commit

    def start_commit(self: SessionMachine[OwnedUnit], owned: OwnedUnit) -> UnitCommit | None:
        commit = right(self, owned)
        if commit is None or owned.cursor is None:
            return commit
        return commit._replace(drained=owned.cursor.draining)

    monkeypatch.setattr(SessionMachine, "start_commit", start_commit)


MUTATIONS = {
    mutation.__name__: mutation
    for mutation in (
        without_the_epoch_check,
        without_the_resend,
        without_the_early_stop,
        without_the_parent_gate,
        without_the_fence,
        without_the_turn_of_a_unit,
        without_the_unit_of_an_ack,
        without_the_wait_of_a_drain,
    )
}
