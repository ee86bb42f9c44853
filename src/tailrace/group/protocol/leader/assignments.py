"""The units that a leader has assigned, each on its way from being granted to being free again.

A message that a borrower must receive is sent when it is `due`, and repeated until it is answered.
A revocation has an end. A borrower that does not release the unit in time receives `Revoked`. If it
does not answer that within a lease either, the unit is freed; until it answers, its process gets no
further time for deliveries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tailrace.group.protocol.messages import Grant, Revoke, Revoked, ToBorrower
from tailrace.group.protocol.states import ASSIGNMENT, AssignmentState
from tailrace.group.protocol.times import Resend, Times

_MESSAGES: Final[dict[AssignmentState, type[Grant] | type[Revoke] | type[Revoked]]] = {
    AssignmentState.GRANTING: Grant,
    AssignmentState.REVOKING: Revoke,
    AssignmentState.REVOKED: Revoked,
}


class Eviction(NamedTuple):
    """A unit that was freed although its borrower did not answer."""

    borrower: str
    unit: str
    epoch: int


class UnitAssignment:
    """The assignment of a unit to a borrower."""

    __slots__ = ("borrower", "epoch", "final", "give_up_at", "overdue", "resend", "state")

    def __init__(
        self, borrower: str, epoch: int, state: AssignmentState, resend: Resend | None
    ) -> None:
        self.borrower = borrower
        self.epoch = epoch
        self.state = state
        self.resend = resend
        self.give_up_at: float | None = None
        self.final = False
        """True if the borrower has reported final progress: no delivery is in flight."""
        self.overdue = False
        """True if the borrower has not released the unit in time."""

    @property
    def leaving(self) -> bool:
        """True if the unit is being revoked."""
        return self.give_up_at is not None


class Assignments:
    """The assignments of one leader, by unit."""

    def __init__(self, group: str, term: int, times: Times) -> None:
        self._group = group
        self._term = term
        self._times = times
        self._by_unit: dict[str, UnitAssignment] = {}
        self._evicted: dict[Eviction, Resend] = {}
        """The evictions that borrowers have not confirmed."""
        self._overdue: set[str] = set()
        """The borrowers that have not released a unit in time."""
        self._last_owner: dict[str, str] = {}
        """The last borrower of each free unit, for the history."""

    def __contains__(self, unit: str) -> bool:
        return unit in self._by_unit

    def items(self) -> list[tuple[str, UnitAssignment]]:
        """Return a copy of all assignments, by unit."""
        return list(self._by_unit.items())

    def get(self, unit: str) -> UnitAssignment | None:
        """Return the assignment of a unit."""
        return self._by_unit.get(unit)

    def of(self, borrower: str, unit: str, epoch: int) -> UnitAssignment | None:
        """Return the assignment of a unit, if its borrower and epoch are these."""
        assignment = self._by_unit.get(unit)
        if assignment is None or (assignment.borrower, assignment.epoch) != (borrower, epoch):
            return None
        return assignment

    def adopt(self, unit: str, borrower: str, epoch: int) -> None:
        """Add an assignment of an earlier term."""
        state = ASSIGNMENT.move(None, "adopted", AssignmentState.GRANTED)
        self._by_unit[unit] = UnitAssignment(borrower, epoch, state, None)

    def grant(self, unit: str, borrower: str, epoch: int, now: float) -> str | None:
        """Add an assignment whose grant is committed. Returns the unit's last borrower."""
        state = ASSIGNMENT.move(None, "grant committed", AssignmentState.GRANTING)
        self._by_unit[unit] = UnitAssignment(borrower, epoch, state, Resend(self._times, now))
        return self._last_owner.pop(unit, None)

    def confirm(self, unit: str, cause: str) -> None:
        """Record that the borrower has the unit."""
        assignment = self._by_unit[unit]
        if assignment.state is AssignmentState.GRANTING:
            assignment.state = ASSIGNMENT.move(assignment.state, cause, AssignmentState.GRANTED)
            assignment.resend = None

    def grant_again(self, unit: str, now: float) -> None:
        """Send the grant again to a borrower that did not present the unit."""
        assignment = self._by_unit[unit]
        if assignment.state is AssignmentState.GRANTED:
            assignment.state = ASSIGNMENT.move(
                assignment.state, "not presented", AssignmentState.GRANTING
            )
            assignment.resend = Resend(self._times, now)

    def revoke(self, unit: str, timeout_s: float, now: float) -> bool:
        """Start to revoke a unit. False if the unit is already being revoked."""
        assignment = self._by_unit[unit]
        if assignment.leaving:
            return False
        assignment.state = ASSIGNMENT.move(assignment.state, "revoke", AssignmentState.REVOKING)
        self._send_until_answered(assignment, timeout_s, now)
        return True

    def finish(self, unit: str, timeout_s: float, now: float) -> None:
        """Record final progress of the borrower, and confirm it."""
        self._by_unit[unit].final = True
        self.release(unit, "final progress", timeout_s, now)

    def release(self, unit: str, cause: str, timeout_s: float, now: float) -> None:
        """Send `Revoked` to the borrower until it answers."""
        assignment = self._by_unit[unit]
        if assignment.state is not AssignmentState.REVOKED:
            assignment.state = ASSIGNMENT.move(assignment.state, cause, AssignmentState.REVOKED)
            self._send_until_answered(assignment, timeout_s, now)

    def end(self, unit: str, cause: str) -> UnitAssignment:
        """Remove an assignment: its unit is free."""
        assignment = self._by_unit.pop(unit)
        self._last_owner[unit] = assignment.borrower
        ASSIGNMENT.check(assignment.state, cause, None)
        if assignment.overdue:
            self._overdue = {each.borrower for each in self._by_unit.values() if each.overdue}
        return assignment

    def forgotten(self, borrower: str, unit: str, epoch: int) -> None:
        """Record that a borrower has forgotten a unit."""
        self._evicted.pop(Eviction(borrower, unit, epoch), None)

    def forget(self, borrower: str) -> None:
        """Drop the evictions of a borrower that ended."""
        for eviction in [each for each in self._evicted if each.borrower == borrower]:
            del self._evicted[eviction]

    @property
    def distrusted(self) -> set[str]:
        """The borrowers that may still deliver from units that they lost."""
        return self._overdue | {eviction.borrower for eviction in self._evicted}

    def give_up(self, now: float) -> list[str]:
        """Apply timeouts of revocations. Returns the units to free although no answer came."""
        free = []
        for unit, assignment in self._by_unit.items():
            if assignment.give_up_at is None or now < assignment.give_up_at:
                continue
            if assignment.final or assignment.overdue:
                free.append(unit)
                continue
            assignment.overdue = True
            self._overdue.add(assignment.borrower)
            assignment.give_up_at = now + self._times.free_s
            if assignment.state is AssignmentState.REVOKING:
                assignment.state = ASSIGNMENT.move(
                    assignment.state, "revoke timeout", AssignmentState.REVOKED
                )
                assignment.resend = Resend(self._times, now)
        for unit in free:
            if not (given_up := self._by_unit[unit]).final:
                eviction = Eviction(given_up.borrower, unit, given_up.epoch)
                self._evicted[eviction] = Resend(self._times, now)
        return free

    def due(self, now: float) -> Iterator[ToBorrower]:
        """Yield the messages that are due, and schedule their repetition."""
        for unit, assignment in self._by_unit.items():
            if assignment.resend is not None and assignment.resend.due(now):
                message = _MESSAGES[assignment.state]
                yield message(self._group, assignment.borrower, self._term, unit, assignment.epoch)
        for (borrower, unit, epoch), resend in self._evicted.items():
            if resend.due(now):
                yield Revoked(self._group, borrower, self._term, unit, epoch)

    def deadline(self) -> float | None:
        """Return the time of the next message or timeout."""
        times = [resend.at for resend in self._evicted.values()]
        for assignment in self._by_unit.values():
            if assignment.resend is not None:
                times.append(assignment.resend.at)
            if assignment.give_up_at is not None:
                times.append(assignment.give_up_at)
        return min(times, default=None)

    def validate(self) -> None:
        """Check that each message without an answer is repeated, and each revocation has an end."""
        for unit, assignment in self._by_unit.items():
            confirmed = assignment.state is AssignmentState.GRANTED
            assert confirmed == (assignment.resend is None), f"{unit} is not repeated"
            moving = assignment.state in (AssignmentState.REVOKING, AssignmentState.REVOKED)
            assert moving == assignment.leaving, f"{unit} is revoked without an end"

    def _send_until_answered(
        self, assignment: UnitAssignment, timeout_s: float, now: float
    ) -> None:
        assignment.resend = Resend(self._times, now)
        if assignment.give_up_at is None:
            assignment.give_up_at = now + timeout_s
