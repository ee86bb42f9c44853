"""Carrying out what a registry wants of the store. The simulator does it by the same code."""

from __future__ import annotations

from typing import Final, TypeAlias

from tailrace.backend.contract import Backend
from tailrace.group import grants
from tailrace.group.actions import CommitGrants, Elect, Look, ReadGrants, ReadUnits, Resign
from tailrace.group.events import Event, UnitsRead
from tailrace.group.streams import BasisReader

READERS_MAX: Final = 1000
"""For how many groups what was read is remembered."""

Wanted: TypeAlias = Look | Elect | Resign | ReadUnits | ReadGrants | CommitGrants


class StoreActions:
    """The store as one process uses it for its groups. For one thread.

    Raises what the backend raises, and `UnknownGroup`.
    """

    def __init__(self, backend: Backend, process: str) -> None:
        self._backend = backend
        self._process = process
        self._readers: dict[str, BasisReader] = {}

    def carry_out(self, action: Wanted) -> Event | None:
        """Do it; the answer, if it has one."""
        match action:
            case Look(group):
                return grants.look(self._backend, group)
            case Elect():
                return grants.elect(self._backend, self._process, action)
            case Resign(group, term):
                self._readers.pop(group, None)
                grants.resign(self._backend, group, term)
                return None
            case ReadUnits(group):
                return self._read_units(group)
            case ReadGrants(group, term):
                return grants.read_grants(self._backend, group, term)
            case CommitGrants():
                return grants.commit_grants(self._backend, action)

    def _read_units(self, group: str) -> UnitsRead:
        reader = self._readers.pop(group, None) or BasisReader(self._backend, group)
        self._readers[group] = reader
        if len(self._readers) > READERS_MAX:
            del self._readers[next(iter(self._readers))]
        return UnitsRead(group, reader.read())
