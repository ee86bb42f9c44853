"""The workers of a subscription, and which of them owns which shard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache

from tailrace.backend.contract import Backend
from tailrace.group.protocol.names import consumer_of
from tailrace.group.store.grants import standing_grants
from tailrace.group.store.presence import HOLDS, members
from tailrace.subscription.store.definition import SubscriptionDefinition
from tailrace.subscription.store.names import ShardName, worker_group


@dataclass(frozen=True, slots=True)
class ShardOwner:
    """The worker that owns a shard: its `SubscriptionWorker.id`, its process, and the epoch of its
    grant. `silent_s` is the time since the last heartbeat of the process."""

    worker: str
    process: str
    epoch: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class SubscriptionWorker:
    """A worker whose process is alive: since when it works, and the shards that it owns.

    `silent_s` is the time since the last heartbeat of the process: more than a lease if the process
    is stopped or cut off.
    """

    id: str
    process: str
    since: datetime
    silent_s: float
    shards: tuple[int, ...]


def shard_owners(
    backend: Backend, name: str, definition: SubscriptionDefinition
) -> dict[int, ShardOwner]:
    """Return the owners of the shards of the present generation; a shard without one is left
    out."""

    @cache
    def process(held: str) -> tuple[str | None, float]:
        return backend.holder(HOLDS + held), backend.silent_s(HOLDS + held) or 0.0

    found = {}
    for grant in standing_grants(backend, worker_group(name)):
        shard = ShardName.parse(grant.unit)
        owner, silent_s = process(grant.process)
        if shard.generation == definition.generation and owner is not None and not grant.fenced:
            worker = consumer_of(grant.borrower)
            found[shard.shard] = ShardOwner(worker, owner, grant.epoch, silent_s)
    return found


def workers(
    backend: Backend, name: str, owners: dict[int, ShardOwner]
) -> tuple[SubscriptionWorker, ...]:
    """Return the workers of a subscription, the oldest first."""
    return tuple(
        SubscriptionWorker(
            each.session,
            each.owner,
            each.since,
            each.silent_s,
            tuple(shard for shard, owner in sorted(owners.items()) if owner.worker == each.session),
        )
        for each in members(backend, worker_group(name))
        if each.owner is not None
    )
