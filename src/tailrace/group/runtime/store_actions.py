"""The store actions of a registry, executed. The simulator executes them with the same code."""

from __future__ import annotations

from typing import TypeAlias

from tailrace.backend.contract import Backend
from tailrace.group.protocol.actions import (
    CommitGrants,
    Elect,
    FindLeader,
    ReadGrants,
    ReadUnits,
    Resign,
)
from tailrace.group.protocol.events import Event, UnitsRead
from tailrace.group.store import grants
from tailrace.group.store.unit_source import UnitSources

GroupAction: TypeAlias = FindLeader | Elect | Resign | ReadUnits | ReadGrants | CommitGrants


class StoreActions:
    """The store as one process uses it for its groups. For one thread.

    Raises the errors of the backend, and `UnknownGroup`.
    """

    def __init__(self, backend: Backend, process: str, sources: UnitSources) -> None:
        self._backend = backend
        self._process = process
        self._sources = sources

    def execute(self, action: GroupAction) -> Event | None:
        """Execute an action and return its answer; None for an action without an answer."""
        match action:
            case FindLeader(group):
                return grants.find_leader(self._backend, group)
            case Elect():
                source = self._sources.of(action.group)
                return grants.elect(self._backend, self._process, action, source)
            case Resign(group, term):
                self._sources.of(group).forget(group)
                grants.resign(self._backend, group, term)
                return None
            case ReadUnits(group):
                return UnitsRead(group, self._sources.of(group).units(group))
            case ReadGrants(group, term):
                return grants.read_grants(self._backend, group, term)
            case CommitGrants():
                return grants.commit_grants(self._backend, action)
