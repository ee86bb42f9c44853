"""The units of a subscription's workers: its shards. See `UnitSource`."""

from __future__ import annotations

import contextlib

from tailrace.backend.contract import Backend, Entry
from tailrace.errors import Conflict, UnknownGroup
from tailrace.group.protocol.unit import Basis, Unit, UnitState
from tailrace.group.store.unit_source import Concern
from tailrace.subscription.store.definition import (
    StoredSubscription,
    find_subscription,
    opening_of,
)
from tailrace.subscription.store.names import (
    SUBSCRIPTIONS,
    ShardName,
    subscription_of,
    worker_group,
)
from tailrace.topic.composite import TOPICS


class ShardUnits:
    """The unit source of the groups of subscriptions' workers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def units(self, group: str) -> Basis:
        """Return the shards of a subscription; first open the storage topics that can be."""
        stored = self._read(group)
        change = opening_of(stored)
        if change is not None:
            with contextlib.suppress(Conflict):  # another process was faster
                self._backend.store.commit(change)
            stored = self._read(group)
        definition = stored.definition
        units = [
            Unit(str(ShardName(definition.generation, shard)), UnitState.OPEN)
            for shard in range(definition.shards)
        ]
        return Basis(tuple(units), ((SUBSCRIPTIONS + stored.name, stored.version),))

    def forget(self, group: str) -> None:
        """Do nothing: nothing is remembered."""

    def defined_by(self, group: str) -> tuple[str, int]:
        """Return the entry of the subscription's definition."""
        stored = self._read(group)
        return SUBSCRIPTIONS + stored.name, stored.version

    def concerns(self, entry: Entry) -> Concern | None:
        """Return the group that a definition concerns; a topic may concern any."""
        key, removed = entry.key, entry.value is None
        if key.startswith(TOPICS):
            return Concern(None, units_changed=True, may_have_ended=removed)
        if key.startswith(SUBSCRIPTIONS):
            group = worker_group(key.removeprefix(SUBSCRIPTIONS))
            return Concern(group, units_changed=not removed, may_have_ended=removed)
        return None

    def check(self, group: str) -> None:
        """Raise `UnknownGroup` if the subscription was deleted, `UnknownTopic` if a topic was."""
        self._read(group)

    def _read(self, group: str) -> StoredSubscription:
        name = subscription_of(group)
        stored = None if name is None else find_subscription(self._backend, name)
        if stored is None:
            raise UnknownGroup(group, self._backend.name)
        return stored
