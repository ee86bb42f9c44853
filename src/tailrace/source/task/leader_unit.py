"""The unit that the group of a source's tasks shares: to lead. See `UnitSource`."""

from __future__ import annotations

from tailrace.backend.contract import Backend, Entry
from tailrace.errors import UnknownGroup
from tailrace.group.protocol.unit import Basis, Unit, UnitState
from tailrace.group.store.presence import MEMBERS
from tailrace.group.store.unit_source import Concern
from tailrace.source.names import LEADER, source_of, task_group
from tailrace.subscription.store.shared_names import SOURCES


class LeaderUnit:
    """The unit source of the groups of sources."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def units(self, group: str) -> Basis:
        """Return the one unit."""
        return Basis((Unit(LEADER, UnitState.OPEN),), (self.defined_by(group),))

    def forget(self, group: str) -> None:
        """Do nothing: nothing is remembered."""

    def defined_by(self, group: str) -> tuple[str, int]:
        """Return the entry of the source."""
        name = source_of(group)
        entry = None if name is None else self._backend.store.get(SOURCES + name)
        if entry is None or entry.value is None:
            raise UnknownGroup(group, self._backend.name)
        return entry.key, entry.version

    def concerns(self, entry: Entry) -> Concern | None:
        """Return the group whose members or whose source have changed."""
        if entry.key.startswith(MEMBERS):
            group = entry.key.removeprefix(MEMBERS).partition("/")[0]
            return None if source_of(group) is None else Concern(group, sessions_concerned=True)
        if entry.key.startswith(SOURCES):
            group = task_group(entry.key.removeprefix(SOURCES))
            return Concern(group, units_changed=True, may_have_ended=entry.value is None)
        return None

    def check(self, group: str) -> None:
        """Raise `UnknownGroup` if the source was deleted."""
        self.defined_by(group)
