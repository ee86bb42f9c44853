"""The units of a borrower, and the highest known epoch of each: so a late message cannot restore a
unit that the borrower has lost."""

from __future__ import annotations

from collections.abc import ItemsView

from tailrace.group.protocol.messages import HeldUnit
from tailrace.group.protocol.states import BORROWED_UNIT, BorrowedUnitState
from tailrace.group.protocol.times import Resend, Times


class BorrowedUnit:
    """A unit that a borrower holds."""

    __slots__ = ("epoch", "final", "finished", "mark", "report", "state")

    def __init__(self, epoch: int) -> None:
        self.state = BORROWED_UNIT.move(None, "grant", BorrowedUnitState.GRANTED)
        self.epoch = epoch
        self.mark = 0
        self.final = False
        """True if progress is durable and no delivery is in flight or will be."""
        self.finished = False
        """True if progress has reached the end of the unit."""
        self.report: Resend | None = None
        """When to repeat a report that the leader has to act on."""

    def revoke(self, cause: str) -> None:
        """Stop delivering."""
        self.state = BORROWED_UNIT.move(self.state, cause, BorrowedUnitState.REVOKING)
        self.report = None

    def report_until_answered(self, times: Times, now: float) -> None:
        """Repeat the report that is sent now until the leader answers."""
        self.report = Resend(times, now)
        self.report.due(now)


class BorrowedUnits:
    """The units of one borrower. For one thread."""

    def __init__(self) -> None:
        self._units: dict[str, BorrowedUnit] = {}
        self._newest: dict[str, int] = {}

    def __contains__(self, unit: object) -> bool:
        return unit in self._units

    def __len__(self) -> int:
        return len(self._units)

    def items(self) -> ItemsView[str, BorrowedUnit]:
        """Return the units, by name."""
        return self._units.items()

    def of(self, unit: str, epoch: int) -> BorrowedUnit | None:
        """Return a unit, if it is held at this epoch."""
        borrowed = self._units.get(unit)
        return borrowed if borrowed is not None and borrowed.epoch == epoch else None

    def is_new(self, unit: str, epoch: int) -> bool:
        """True if no message about the unit carried this epoch or a later one."""
        return epoch > self._newest.get(unit, 0)

    def record_epoch(self, unit: str, epoch: int) -> None:
        """Ignore grants of this epoch and of earlier ones from now on."""
        self._newest[unit] = epoch

    def add(self, unit: str, epoch: int) -> BorrowedUnit:
        """Add a unit that was granted."""
        self.record_epoch(unit, epoch)
        borrowed = self._units[unit] = BorrowedUnit(epoch)
        return borrowed

    def remove(self, unit: str, cause: str) -> int:
        """Remove a unit, and return its epoch."""
        borrowed = self._units.pop(unit)
        BORROWED_UNIT.check(borrowed.state, cause, None)
        return borrowed.epoch

    @property
    def held(self) -> tuple[HeldUnit, ...]:
        """All units, as presented to a leader."""
        return tuple(
            HeldUnit(unit, borrowed.epoch, borrowed.state is BorrowedUnitState.REVOKING)
            for unit, borrowed in self._units.items()
        )

    @property
    def final(self) -> bool:
        """True if every unit is final."""
        return all(borrowed.final for borrowed in self._units.values())

    def deadline(self) -> float | None:
        """Return the time of the next report."""
        reports = [borrowed.report.at for borrowed in self._units.values() if borrowed.report]
        return min(reports, default=None)

    def validate(self) -> None:
        """Check every invariant of every unit."""
        for unit, borrowed in self._units.items():
            assert self._newest[unit] == borrowed.epoch, f"{unit} is of an old epoch"
            assert borrowed.state is BorrowedUnitState.REVOKING or not borrowed.final, (
                f"{unit} is final"
            )
