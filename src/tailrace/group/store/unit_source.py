"""The contract of a source of units. The protocol grants units by name and knows no more of them.

A unit is a name. In a group that consumes topics the units are partitions; see
`tailrace.group.store.partition_units`. Other groups bring their own `UnitSource`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tailrace.backend.contract import Entry
from tailrace.group.protocol.unit import Basis


class Concern(NamedTuple):
    """The meaning of a changed store entry for the groups of a source.

    `group` is the group concerned; None means that every group may be. `units_changed`: the group's
    leader must read the units again. `may_have_ended`: sessions of the group must be checked.
    `sessions_concerned`: its sessions must read again what the store holds for them.
    """

    group: str | None
    units_changed: bool = False
    may_have_ended: bool = False
    sessions_concerned: bool = False


class UnitSource(Protocol):
    """The units of some groups. Every method may raise the errors of the backend."""

    def units(self, group: str) -> Basis:
        """Read the units of a group and the store entries, with versions, that determine them.

        Called by one thread of a process that leads the group, again whenever `concerns` reports a
        change. May write the entries that new units need first. Raises `UnknownGroup`.
        """

    def forget(self, group: str) -> None:
        """Drop the memory of `units` for a group: this process no longer leads the group.

        Called by the thread that calls `units`.
        """

    def defined_by(self, group: str) -> tuple[str, int]:
        """Return the key and the version of the store entry that defines a group.

        An election expects that version. Any thread. Raises `UnknownGroup`.
        """

    def concerns(self, entry: Entry) -> Concern | None:
        """Return the meaning of a changed or removed store entry; None if it does not concern the
        units of any group. Any thread; reads nothing."""

    def check(self, group: str) -> None:
        """Raise the error that ends consuming in a group: `UnknownGroup`, or `UnknownTopic` if the
        topic of the group was deleted. Any thread."""


class UnitSources:
    """The unit source of each group of a process. Any thread may call it.

    Sources are kept until the process leaves its last group: a leader may need the units of its
    group for a while after the last session left.
    """

    def __init__(self, default: UnitSource) -> None:
        self._default = default
        self._by_group: dict[str, UnitSource] = {}

    def __iter__(self) -> Iterator[UnitSource]:
        """Return every source once."""
        sources = [self._default, *list(self._by_group.values())]
        return iter({id(source): source for source in sources}.values())

    def add(self, group: str, source: UnitSource) -> None:
        """Use a source for a group instead of the default."""
        self._by_group[group] = source

    def of(self, group: str) -> UnitSource:
        """Return the source of a group."""
        return self._by_group.get(group, self._default)
