"""What a leader knows of the store: the units, the grants that stand, and a commit under way.

A plan is made only from what is known for certain. After a commit of which nobody knows whether it
happened, and after anything changed that may have removed grants, they are read again first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.group.actions import Action, CommitGrants, NewGrant, ReadGrants, ReadUnits
from tailrace.group.times import Resend, Times
from tailrace.group.unit import Basis, StoredGrant, UnitState


class Stored:
    """The store as one leader knows it. For one thread, and without I/O."""

    def __init__(
        self, group: str, term: int, times: Times, grants: Iterable[StoredGrant], now: float
    ) -> None:
        self.epochs = {grant.unit: grant.epoch for grant in grants}
        """The epochs of the grants that stand."""
        self.pending: CommitGrants | None = None
        self.opened: set[str] = set()
        """The units that are open and were not when it began, for people to see."""
        self._group = group
        self._term = term
        self._times = times
        self._basis: Basis | None = None
        self._stale = True
        self._unsure = False
        self._number = 0
        self._ask = Resend(times, now)
        self._refresh_at = now + times.refresh_s

    @property
    def certain(self) -> bool:
        """Whether all is known that a plan is made from."""
        return self.pending is None and not self._stale and not self._unsure

    @property
    def open_units(self) -> dict[str, int]:
        """The units that may be consumed now, with their loads."""
        units = () if self._basis is None else self._basis.units
        return {unit.name: unit.load for unit in units if unit.state is UnitState.OPEN}

    @property
    def states(self) -> dict[str, UnitState]:
        """All units that there are."""
        units = () if self._basis is None else self._basis.units
        return {unit.name: unit.state for unit in units}

    def take_units(self, basis: Basis, now: float) -> None:
        """The units were read."""
        # A seek removes grants in the very commit that changes a version.
        if self._basis is not None and self._basis.versions != basis.versions:
            self.doubt_grants(now)
        first, before = self._basis is None, self.open_units.keys()
        self._basis, self._stale = basis, False
        if not first:
            now_open = self.open_units.keys()
            self.opened = (self.opened & now_open) | (now_open - before)
        self._refresh_at = now + self._times.refresh_s

    def take_grants(self, grants: Sequence[StoredGrant], now: float) -> bool:
        """The grants were read; False when that cannot be gone by, for a commit is under way."""
        if not self._unsure or self.pending is not None:
            return False
        self._unsure = False
        self._ask = Resend(self._times, now)
        self.epochs = {grant.unit: grant.epoch for grant in grants}
        return True

    def doubt_units(self, now: float) -> None:
        """Read the units before the next plan."""
        if not self._stale:
            self._stale = True
            self._ask = Resend(self._times, now)

    def doubt_grants(self, now: float) -> None:
        """Read the grants before the next plan."""
        self._unsure = True
        self._ask = Resend(self._times, now)

    def questions(self, now: float) -> list[Action]:
        """What to read now."""
        if now >= self._refresh_at:
            self._refresh_at = now + self._times.refresh_s
            self.doubt_units(now)
        if self.pending is not None or not (self._stale or self._unsure):
            return []
        if not self._ask.due(now):
            return []
        return [ReadGrants(self._group, self._term) if self._unsure else ReadUnits(self._group)]

    def commit(self, granted: tuple[NewGrant, ...], freed: Iterable[str]) -> list[Action]:
        """What to commit, if anything; nothing else is until that is settled."""
        assert self.certain
        assert self._basis is not None
        ended = tuple((unit, self.epochs[unit]) for unit in sorted(freed))
        if not granted and not ended:
            return []
        self._number += 1
        self.pending = CommitGrants(
            self._group, self._number, self._term, self._basis.versions, granted, ended
        )
        return [self.pending]

    def settle(self, number: int) -> CommitGrants | None:
        """The commit that this is the answer to; it is no longer under way."""
        pending = self.pending
        if pending is None or pending.number != number:
            return None
        self.pending = None
        return pending

    def committed(self, done: CommitGrants, epoch: int) -> None:
        """A commit happened."""
        for unit, _ in done.freed:
            del self.epochs[unit]
        for grant in done.granted:
            self.epochs[grant.unit] = epoch

    def deadline(self) -> float:
        """When to read something."""
        waiting = self.pending is None and (self._stale or self._unsure)
        return min(self._refresh_at, self._ask.at) if waiting else self._refresh_at
