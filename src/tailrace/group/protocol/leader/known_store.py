"""The store as a leader knows it: the units, the present grants, and a pending commit.

A leader plans only when this knowledge is current. The grants are read again after a commit with an
unknown outcome, and after a change that may have fenced grants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.group.protocol.actions import Action, CommitGrants, NewGrant, ReadGrants, ReadUnits
from tailrace.group.protocol.times import Resend, Times
from tailrace.group.protocol.unit import Basis, StoredGrant, UnitState


class KnownStore:
    """The store as one leader knows it. For one thread, and without I/O."""

    def __init__(
        self, group: str, term: int, times: Times, grants: Iterable[StoredGrant], now: float
    ) -> None:
        self.epochs = {grant.unit: grant.epoch for grant in grants}
        """The epochs of the present grants, by unit."""
        self.pending: CommitGrants | None = None
        self.opened: set[str] = set()
        """The open units that were not open when the leader was elected, for the history."""
        self._group = group
        self._term = term
        self._times = times
        self._basis: Basis | None = None
        self._units_stale = True
        self._grants_stale = False
        self._number = 0
        self._next_read = Resend(times, now)
        self._refresh_at = now + times.refresh_s

    @property
    def certain(self) -> bool:
        """True if the leader may plan: nothing is pending and nothing has to be read."""
        return self.pending is None and not self._units_stale and not self._grants_stale

    @property
    def open_units(self) -> dict[str, int]:
        """The open units with their loads."""
        units = () if self._basis is None else self._basis.units
        return {unit.name: unit.load for unit in units if unit.state is UnitState.OPEN}

    @property
    def states(self) -> dict[str, UnitState]:
        """The states of all units."""
        units = () if self._basis is None else self._basis.units
        return {unit.name: unit.state for unit in units}

    def units_read(self, basis: Basis, now: float) -> None:
        """Record the units that were read."""
        # A seek fences grants in the same commit that changes a version. At the first read, only
        # a version above the term counts: the grants were read after the commit of the term.
        if self._basis is None:
            changed = any(version > self._term for _, version in basis.versions)
        else:
            changed = self._basis.versions != basis.versions
        if changed:
            self.invalidate_grants(now)
        first, before = self._basis is None, self.open_units.keys()
        self._basis, self._units_stale = basis, False
        if not first:
            now_open = self.open_units.keys()
            self.opened = (self.opened & now_open) | (now_open - before)
        self._refresh_at = now + self._times.refresh_s

    def grants_read(self, grants: Sequence[StoredGrant], now: float) -> bool:
        """Record the grants that were read. False if they are ignored: a commit is pending."""
        if not self._grants_stale or self.pending is not None:
            return False
        self._grants_stale = False
        self._next_read = Resend(self._times, now)
        self.epochs = {grant.unit: grant.epoch for grant in grants}
        return True

    def invalidate_units(self, now: float) -> None:
        """Require that the units are read before the next plan."""
        if not self._units_stale:
            self._units_stale = True
            self._next_read = Resend(self._times, now)

    def invalidate_grants(self, now: float) -> None:
        """Require that the grants are read before the next plan."""
        self._grants_stale = True
        self._next_read = Resend(self._times, now)

    def reads_due(self, now: float) -> list[Action]:
        """Return the reads that are due."""
        if now >= self._refresh_at:
            self._refresh_at = now + self._times.refresh_s
            self.invalidate_units(now)
        if self.pending is not None or not (self._units_stale or self._grants_stale):
            return []
        if not self._next_read.due(now):
            return []
        return [
            ReadGrants(self._group, self._term) if self._grants_stale else ReadUnits(self._group)
        ]

    def commit(self, granted: tuple[NewGrant, ...], freed: Iterable[str]) -> list[Action]:
        """Return the commit of grants, if any. No other commit starts before its answer."""
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

    def resolve(self, number: int) -> CommitGrants | None:
        """Return the pending commit with this number, which is no longer pending."""
        pending = self.pending
        if pending is None or pending.number != number:
            return None
        self.pending = None
        return pending

    def committed(self, done: CommitGrants, epoch: int) -> None:
        """Record a commit that happened."""
        for unit, _ in done.freed:
            del self.epochs[unit]
        for grant in done.granted:
            self.epochs[grant.unit] = epoch

    def deadline(self) -> float:
        """Return the time of the next read."""
        waiting = self.pending is None and (self._units_stale or self._grants_stale)
        return min(self._refresh_at, self._next_read.at) if waiting else self._refresh_at
