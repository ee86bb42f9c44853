"""The borrowers that a leader knows, and their processes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from tailrace.group.protocol.leader.events import RosterRead
from tailrace.group.protocol.messages import LeaderWanted
from tailrace.group.protocol.unit import StoredGrant

REFUSED_MAX: Final = 10_000
"""The number of borrowers that a leader remembers to refuse. Each is one expired lease."""


@dataclass(frozen=True, slots=True)
class KnownBorrower:
    """A borrower as its leader knows it. One that is known only by grants of an earlier term is not
    `connected` yet."""

    process: str
    revoke_timeout_s: float
    roster_version: int = 0
    connected: bool = False


class Borrowers:
    """The borrowers of one group, by name. For one thread."""

    def __init__(self) -> None:
        self.version = 0
        """A number that increases with every change."""
        self.processes: frozenset[str] = frozenset()
        """The processes of all borrowers."""
        self._served: frozenset[str] = frozenset()
        self._known: dict[str, KnownBorrower] = {}
        self._refused: dict[str, None] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> KnownBorrower:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def serves(self, process: str) -> bool:
        """True if a borrower of a process is connected."""
        return process in self._served

    def adopt(self, grants: Collection[StoredGrant], revoke_timeout_s: float) -> None:
        """Add the borrowers of grants of an earlier term."""
        for grant in grants:
            self._known.setdefault(grant.borrower, KnownBorrower(grant.process, revoke_timeout_s))
        self._changed()

    def connect(self, process: str, wanted: LeaderWanted) -> bool:
        """Add or update a borrower that connects. True if it was not connected before."""
        before = self._known.get(wanted.borrower)
        self._known[wanted.borrower] = KnownBorrower(
            process, wanted.revoke_timeout_s, wanted.roster_version, connected=True
        )
        self._changed()
        return before is None or not before.connected

    def remove(self, names: Collection[str]) -> None:
        """Remove borrowers that ended."""
        for name in names:
            del self._known[name]
        if names:
            self._changed()

    def refuse(self, names: Collection[str]) -> None:
        """Refuse these borrowers if they connect again in this term.

        A grant of this term may still be on its way to them. If a borrower connected again under
        the same name, that grant would count, although the unit has another owner by then.
        """
        self._refused.update(dict.fromkeys(names))
        while len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]

    def refuses(self, name: str) -> bool:
        """True if a borrower must connect under another name."""
        return name in self._refused

    def of(self, process: str) -> list[str]:
        """Return the borrowers of a process."""
        return [name for name, known in self._known.items() if known.process == process]

    def not_connected(self) -> list[str]:
        """Return the borrowers that have not connected to this leader."""
        return [name for name, known in self._known.items() if not known.connected]

    def missing_in(self, roster: RosterRead) -> list[str]:
        """Return the known borrowers of a process that its roster does not list."""
        listed = roster.connected | roster.connecting
        return [
            name
            for name in self.of(roster.process)
            if self._known[name].roster_version <= roster.version and name not in listed
        ]

    def unknown_in(self, roster: RosterRead) -> list[str]:
        """Return the borrowers that a roster lists as connected and that are unknown here."""
        return sorted(roster.connected - self._known.keys())

    def _changed(self) -> None:
        self.version += 1
        known = self._known.values()
        self.processes = frozenset(each.process for each in known)
        self._served = frozenset(each.process for each in known if each.connected)
