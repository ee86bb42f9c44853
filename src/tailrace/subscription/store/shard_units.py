"""The units of a subscription's workers: its shards. See `UnitSource`."""

from __future__ import annotations

from typing import Final

from tailrace.backend.contract import Backend, Entry
from tailrace.errors import UnknownGroup, UnknownTopic
from tailrace.group.protocol.unit import Basis, Unit, UnitState
from tailrace.group.store.definition import GRANTS
from tailrace.group.store.unit_source import Concern
from tailrace.reserved_names import WORKER_GROUP_PREFIX
from tailrace.subscription.layout.generation import ChangePhase
from tailrace.subscription.store.definition import (
    StoredSubscription,
    find_definition,
    find_subscription,
)
from tailrace.subscription.store.generations.steps import advance
from tailrace.subscription.store.names import (
    PAUSED,
    REQUESTS,
    RESETS,
    SUBSCRIPTIONS,
    WORKER_IDS,
    subscription_of,
    worker_group,
)
from tailrace.subscription.store.reset.entry import find_reset
from tailrace.topic.composite import TOPICS

_GRANTS: Final = GRANTS + WORKER_GROUP_PREFIX


class ShardUnits:
    """The unit source of the groups of subscriptions' workers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def units(self, group: str) -> Basis:
        """Return the shards of a subscription; first take the steps that are possible: finish an
        offset reset, open storage topics, change the generation.

        There are none if its topic was deleted. None is granted while the generation ends, or while
        a reset is pending.
        """
        name = self._name(group)
        try:
            stored = advance(self._backend, name)
        except UnknownTopic:
            return Basis((), (self.defined_by(group),))
        if stored is None:
            raise UnknownGroup(group, self._backend.name)
        last = find_reset(self._backend.store, name)
        ends = stored.definition.phase in (ChangePhase.ENDING, ChangePhase.MOVING)
        waits = ends or (last is not None and last.pending)
        state = UnitState.WAITING if waits else UnitState.OPEN
        units = tuple(Unit(unit, state) for unit in stored.units)
        versions = (
            (SUBSCRIPTIONS + name, stored.version),
            (RESETS + name, 0 if last is None else last.version),
        )
        return Basis(units, versions)

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
        """Return the group that a definition, a reset, a pause, a request or a released shard
        concerns; a topic may concern any."""
        key, removed = entry.key, entry.value is None
        if removed and key.startswith(_GRANTS):
            group = key.removeprefix(GRANTS).partition("/")[0]
            return Concern(group, units_changed=True)
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
        if key.startswith(RESETS):
            group = worker_group(key.removeprefix(RESETS))
            return Concern(group, units_changed=True, sessions_concerned=True)
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
        stored = find_subscription(self._backend, self._name(group))
        if stored is None:
            raise UnknownGroup(group, self._backend.name)
        return stored

    def _name(self, group: str) -> str:
        name = subscription_of(group)
        if name is None:
            raise UnknownGroup(group, self._backend.name)
        return name
