"""The units of a subscription's workers: its shards. See `UnitSource`."""

from __future__ import annotations

import contextlib

from tailrace.backend.contract import Backend, Entry
from tailrace.errors import Conflict, UnknownGroup, UnknownTopic
from tailrace.group.protocol.unit import Basis, Unit, UnitState
from tailrace.group.store.unit_source import Concern
from tailrace.subscription.store.definition import (
    StoredSubscription,
    find_definition,
    find_subscription,
    opening_of,
)
from tailrace.subscription.store.names import (
    PAUSED,
    REQUESTS,
    SUBSCRIPTIONS,
    WORKER_IDS,
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
        """Return the shards of a subscription; first open the storage topics that can be.

        There are none if its topic was deleted.
        """
        try:
            stored = self._read(group)
            change = opening_of(stored)
            if change is not None:
                with contextlib.suppress(Conflict):  # another process was faster
                    self._backend.store.commit(change)
                stored = self._read(group)
        except UnknownTopic:
            return Basis((), (self.defined_by(group),))
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
        name = subscription_of(group)
        entry = None if name is None else find_definition(self._backend, name)
        if name is None or entry is None:
            raise UnknownGroup(group, self._backend.name)
        return SUBSCRIPTIONS + name, entry.version

    def concerns(self, entry: Entry) -> Concern | None:
        """Return the group that a definition, a pause or a request concerns; a topic may concern
        any."""
        key, removed = entry.key, entry.value is None
        if key.startswith(TOPICS):
            return Concern(None, units_changed=True, may_have_ended=removed)
        if key.startswith(SUBSCRIPTIONS):
            group = worker_group(key.removeprefix(SUBSCRIPTIONS))
            return Concern(
                group,
                units_changed=not removed,
                may_have_ended=removed,
                sessions_concerned=not removed,
            )
        if key.startswith(PAUSED):
            group = worker_group(key.removeprefix(PAUSED))
            return Concern(group, sessions_concerned=True)
        if key.startswith(WORKER_IDS) and not removed:
            group = worker_group(key.removeprefix(WORKER_IDS).partition("/")[0])
            return Concern(group, sessions_concerned=True)
        if key.startswith(REQUESTS) and not removed:
            group = worker_group(key.removeprefix(REQUESTS).partition("/")[0])
            return Concern(group, sessions_concerned=True)
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
