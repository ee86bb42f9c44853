"""The borrowers that a leader knows, and the processes that they are in."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tailrace.group.leader_events import RosterRead
from tailrace.group.messages import LeaderWanted
from tailrace.group.unit import StoredGrant


@dataclass(frozen=True, slots=True)
class Known:
    """A borrower as its leader knows it. One that is known only by the grants of an earlier term
    has not been `heard` yet."""

    process: str
    revoke_timeout_s: float
    roster_version: int = 0
    heard: bool = False


class Membership:
    """The borrowers of one group, by name. For one thread."""

    def __init__(self) -> None:
        self.version = 0
        """A number that changes with the borrowers."""
        self.processes: frozenset[str] = frozenset()
        """The processes that they are in."""
        self._served: frozenset[str] = frozenset()
        self._known: dict[str, Known] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> Known:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def serves(self, process: str) -> bool:
        """Whether borrowers of a process have been heard."""
        return process in self._served

    def adopt(self, grants: Collection[StoredGrant], revoke_timeout_s: float) -> None:
        """An earlier term has granted something to these."""
        for grant in grants:
            self._known.setdefault(grant.borrower, Known(grant.process, revoke_timeout_s))
        self._changed()

    def take_in(self, process: str, wanted: LeaderWanted) -> bool:
        """A borrower has come; whether for the first time."""
        before = self._known.get(wanted.borrower)
        self._known[wanted.borrower] = Known(
            process, wanted.revoke_timeout_s, wanted.roster_version, heard=True
        )
        self._changed()
        return before is None or not before.heard

    def remove(self, names: Collection[str]) -> None:
        """These are no more."""
        for name in names:
            del self._known[name]
        if names:
            self._changed()

    def of(self, process: str) -> list[str]:
        """The borrowers of a process."""
        return [name for name, known in self._known.items() if known.process == process]

    def unheard(self) -> list[str]:
        """Those that have not come since this leader was elected."""
        return [name for name, known in self._known.items() if not known.heard]

    def missing_in(self, roster: RosterRead) -> list[str]:
        """Those that a process no longer lists."""
        listed = roster.connected | roster.connecting
        return [
            name
            for name in self.of(roster.process)
            if self._known[name].roster_version <= roster.version and name not in listed
        ]

    def strange_in(self, roster: RosterRead) -> list[str]:
        """Those that a process believes to be known here, and that are not."""
        return sorted(roster.connected - self._known.keys())

    def _changed(self) -> None:
        self.version += 1
        known = self._known.values()
        self.processes = frozenset(each.process for each in known)
        self._served = frozenset(each.process for each in known if each.heard)
