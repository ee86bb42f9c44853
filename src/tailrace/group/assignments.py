"""The units that a leader has assigned, each on its way from being granted to being free again.

What a borrower has to hear of is said when it is `due`, and again until it is answered. To take a
unit away has an end: when its borrower does not let go in time it is told that the unit is no
longer its own, and when it does not answer that either within a lease, the unit is free all the
same. Until it answers, nobody tells its process that it may go on handing out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tailrace.group.messages import Grant, Revoke, Revoked, ToBorrower
from tailrace.group.states import ASSIGNMENT, AssignmentState
from tailrace.group.times import Resend, Times

_SAYS: Final[dict[AssignmentState, type[Grant] | type[Revoke] | type[Revoked]]] = {
    AssignmentState.GRANTING: Grant,
    AssignmentState.REVOKING: Revoke,
    AssignmentState.REVOKED: Revoked,
}


class Eviction(NamedTuple):
    """A unit that was taken from a borrower which did not answer."""

    borrower: str
    unit: str
    epoch: int


class Assignment:
    """A unit that a borrower has been granted."""

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
        """Whether its borrower has said that nothing of it is in hand."""
        self.overdue = False
        """Whether its borrower has not let go in time."""

    @property
    def leaving(self) -> bool:
        """Whether it is being taken away."""
        return self.give_up_at is not None


class Assignments:
    """The assignments of one leader, by unit."""

    def __init__(self, group: str, term: int, times: Times) -> None:
        self._group = group
        self._term = term
        self._times = times
        self._by_unit: dict[str, Assignment] = {}
        self._evicted: dict[Eviction, Resend] = {}
        """What borrowers have lost and have not been heard to know of."""
        self._overdue: set[str] = set()
        """The borrowers that have not let go in time."""
        self._had: dict[str, str] = {}
        """The borrowers that units were last freed from, for people to see."""

    def __contains__(self, unit: str) -> bool:
        return unit in self._by_unit

    def items(self) -> list[tuple[str, Assignment]]:
        """All of them, to change meanwhile."""
        return list(self._by_unit.items())

    def get(self, unit: str) -> Assignment | None:
        """That of a unit."""
        return self._by_unit.get(unit)

    def of(self, borrower: str, unit: str, epoch: int) -> Assignment | None:
        """That of a unit, if it is this one."""
        assignment = self._by_unit.get(unit)
        if assignment is None or (assignment.borrower, assignment.epoch) != (borrower, epoch):
            return None
        return assignment

    def adopt(self, unit: str, borrower: str, epoch: int) -> None:
        """Take over one that an earlier leader made."""
        state = ASSIGNMENT.move(None, "adopted", AssignmentState.GRANTED)
        self._by_unit[unit] = Assignment(borrower, epoch, state, None)

    def grant(self, unit: str, borrower: str, epoch: int, now: float) -> str | None:
        """Begin one whose grant is committed; the borrower that had the unit before."""
        state = ASSIGNMENT.move(None, "grant committed", AssignmentState.GRANTING)
        self._by_unit[unit] = Assignment(borrower, epoch, state, Resend(self._times, now))
        return self._had.pop(unit, None)

    def confirm(self, unit: str, cause: str) -> None:
        """Its borrower has it."""
        assignment = self._by_unit[unit]
        if assignment.state is AssignmentState.GRANTING:
            assignment.state = ASSIGNMENT.move(assignment.state, cause, AssignmentState.GRANTED)
            assignment.resend = None

    def repeat(self, unit: str, now: float) -> None:
        """Its borrower does not seem to have it: grant it again."""
        assignment = self._by_unit[unit]
        if assignment.state is AssignmentState.GRANTED:
            assignment.state = ASSIGNMENT.move(
                assignment.state, "not presented", AssignmentState.GRANTING
            )
            assignment.resend = Resend(self._times, now)

    def revoke(self, unit: str, timeout_s: float, now: float) -> bool:
        """Ask its borrower to let go; False when that is under way."""
        assignment = self._by_unit[unit]
        if assignment.leaving:
            return False
        assignment.state = ASSIGNMENT.move(assignment.state, "revoke", AssignmentState.REVOKING)
        self._say(assignment, timeout_s, now)
        return True

    def finish(self, unit: str, timeout_s: float, now: float) -> None:
        """Its borrower has let go: confirm that."""
        self._by_unit[unit].final = True
        self.release(unit, "final progress", timeout_s, now)

    def release(self, unit: str, cause: str, timeout_s: float, now: float) -> None:
        """Tell its borrower that it has it no longer."""
        assignment = self._by_unit[unit]
        if assignment.state is not AssignmentState.REVOKED:
            assignment.state = ASSIGNMENT.move(assignment.state, cause, AssignmentState.REVOKED)
            self._say(assignment, timeout_s, now)

    def end(self, unit: str, cause: str) -> Assignment:
        """The unit is free."""
        assignment = self._by_unit.pop(unit)
        self._had[unit] = assignment.borrower
        ASSIGNMENT.check(assignment.state, cause, None)
        if assignment.overdue:
            self._overdue = {each.borrower for each in self._by_unit.values() if each.overdue}
        return assignment

    def forgotten(self, borrower: str, unit: str, epoch: int) -> None:
        """A borrower knows that it has lost a unit."""
        self._evicted.pop(Eviction(borrower, unit, epoch), None)

    def forget(self, borrower: str) -> None:
        """A borrower is no more."""
        for eviction in [each for each in self._evicted if each.borrower == borrower]:
            del self._evicted[eviction]

    @property
    def distrusted(self) -> set[str]:
        """The borrowers that may be handing out what is no longer theirs."""
        return self._overdue | {eviction.borrower for eviction in self._evicted}

    def give_up(self, now: float) -> list[str]:
        """The units that are free although their borrowers have not answered."""
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
        """What to say now."""
        for unit, assignment in self._by_unit.items():
            if assignment.resend is not None and assignment.resend.due(now):
                say = _SAYS[assignment.state]
                yield say(self._group, assignment.borrower, self._term, unit, assignment.epoch)
        for (borrower, unit, epoch), resend in self._evicted.items():
            if resend.due(now):
                yield Revoked(self._group, borrower, self._term, unit, epoch)

    def deadline(self) -> float | None:
        """When something is to be said or given up."""
        moments = [resend.at for resend in self._evicted.values()]
        for assignment in self._by_unit.values():
            if assignment.resend is not None:
                moments.append(assignment.resend.at)
            if assignment.give_up_at is not None:
                moments.append(assignment.give_up_at)
        return min(moments, default=None)

    def validate(self) -> None:
        """Whatever waits for an answer is said again; whatever is taken away has an end."""
        for unit, assignment in self._by_unit.items():
            settled = assignment.state is AssignmentState.GRANTED
            assert settled == (assignment.resend is None), f"{unit} is not said again"
            moving = assignment.state in (AssignmentState.REVOKING, AssignmentState.REVOKED)
            assert moving == assignment.leaving, f"{unit} is taken away for ever"

    def _say(self, assignment: Assignment, timeout_s: float, now: float) -> None:
        assignment.resend = Resend(self._times, now)
        if assignment.give_up_at is None:
            assignment.give_up_at = now + timeout_s
