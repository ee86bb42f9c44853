"""The safeguards of groups, each taken away: to prove that the simulator would notice.

A mutation replaces one method for the time of a test; the code itself knows nothing of it.
"""

from __future__ import annotations

import pytest

from tailrace.group import streams
from tailrace.group.assignments import Assignment, Assignments
from tailrace.group.borrowed import Borrowed, Stream
from tailrace.group.registry import Registry
from tailrace.group.times import Resend
from tailrace.group.unit import Unit, UnitState
from tailrace.testing.memory.store import MemoryStore

LATE_S = 5.0


def without_the_epoch_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of an earlier grant is taken for the present one."""

    def of(self: Assignments, borrower: str, unit: str, epoch: int) -> Assignment | None:
        assignment = self.get(unit)
        return assignment if assignment is not None and assignment.borrower == borrower else None

    def having(self: Borrowed, unit: str, epoch: int) -> Stream | None:
        return self._streams.get(unit)

    right = Borrowed.is_new

    def is_new(self: Borrowed, unit: str, epoch: int) -> bool:
        return unit not in self or right(self, unit, epoch)

    monkeypatch.setattr(Assignments, "of", of)
    monkeypatch.setattr(Borrowed, "of", having)
    monkeypatch.setattr(Borrowed, "is_new", is_new)


def without_the_resend(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not answered is not said again."""

    def due(self: Resend, now: float) -> bool:
        if now < self.at:
            return False
        self.at = float("inf")
        return True

    monkeypatch.setattr(Resend, "due", due)


def without_the_early_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A borrower goes on handing out for a while after it should have stopped."""
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
    """A write under an epoch that is over is accepted."""
    monkeypatch.setattr(MemoryStore, "check_fence", lambda self, fence: None)


MUTATIONS = {
    mutation.__name__: mutation
    for mutation in (
        without_the_epoch_check,
        without_the_resend,
        without_the_early_stop,
        without_the_parent_gate,
        without_the_fence,
    )
}
