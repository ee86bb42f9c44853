"""The units of a group that consumes topics: the partitions of its topics."""

from __future__ import annotations

from typing import Final

from tailrace.backend.contract import Backend, Entry
from tailrace.group.protocol.unit import Basis
from tailrace.group.store.definition import GROUPS, check_group, read_group
from tailrace.group.store.seek_steps import SEEKS
from tailrace.group.store.streams import BasisReader
from tailrace.group.store.unit_source import Concern
from tailrace.topic.composite import TOPICS

READERS_MAX: Final = 1000
"""The number of groups whose finished partitions are remembered between reads."""


class PartitionUnits:
    """The unit source of groups with a topic filter. See `UnitSource`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._readers: dict[str, BasisReader] = {}

    def units(self, group: str) -> Basis:
        """Read the partitions of the group's topics; start topics that are new to the group."""
        reader = self._readers.pop(group, None) or BasisReader(self._backend, group)
        self._readers[group] = reader
        if len(self._readers) > READERS_MAX:
            del self._readers[next(iter(self._readers))]
        return reader.read()

    def forget(self, group: str) -> None:
        """Drop the memory of a group's finished partitions."""
        self._readers.pop(group, None)

    def defined_by(self, group: str) -> tuple[str, int]:
        """Return the entry of the group's definition."""
        return GROUPS + group, read_group(self._backend, group).version

    def concerns(self, entry: Entry) -> Concern | None:
        """Return the groups that a topic, a seek or a definition concerns."""
        key, removed = entry.key, entry.value is None
        if key.startswith(TOPICS):
            return Concern(None, units_changed=True, may_have_ended=removed)
        if key.startswith(SEEKS):
            return Concern(key.removeprefix(SEEKS).partition("/")[0], units_changed=True)
        if key.startswith(GROUPS):
            group = key.removeprefix(GROUPS)
            return Concern(group, units_changed=not removed, may_have_ended=removed)
        return None

    def check(self, group: str) -> None:
        """Raise `UnknownGroup`, or `UnknownTopic` if the one topic of the group was deleted."""
        check_group(self._backend, group)
