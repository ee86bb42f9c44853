"""Subscriptions as people see them: their definition, their workers, and what waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from tailrace.backend.contract import Backend
from tailrace.backend.table_scan import scan_all
from tailrace.clock import utc_time
from tailrace.delivery.load_control import UNLIMITED, LoadControl
from tailrace.delivery.retry import Retry
from tailrace.errors import UnknownTopic
from tailrace.message import Partition
from tailrace.subscription.endpoint.definition import Endpoint
from tailrace.subscription.layout.agreement import valid_shards
from tailrace.subscription.layout.generation import ChangePhase
from tailrace.subscription.shard.commit.counts import counts_table, decode_counts
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.backlog import (
    NO_BACKLOG,
    Backlog,
    count_unacknowledged,
    read_backlog,
)
from tailrace.subscription.store.definition import StoredSubscription, find_subscription
from tailrace.subscription.store.generations.opening import as_opened, closed_storage
from tailrace.subscription.store.generations.plan import FedStorage, fed_storages
from tailrace.subscription.store.generations.waiting import WaitedFor, next_generation, waited_for
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.lifecycle import read_again_if_deleted, read_definition
from tailrace.subscription.store.names import REQUESTS
from tailrace.subscription.store.owners import (
    ShardOwner,
    SubscriptionWorker,
    shard_owners,
    workers,
)
from tailrace.subscription.store.pause import Pause, find_pause
from tailrace.subscription.store.scaling import used_shapes


@dataclass(frozen=True, slots=True)
class ClosedStorage:
    """The first storage topic that the present generation does not read, because some keys have
    another shard in it.

    `waiting` is the number of messages in it and in later ones. `shards` are numbers of shards with
    which all storage topics would be open.
    """

    storage: int
    partitions: int
    waiting: int
    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NextShards:
    """The change of a subscription to its next generation.

    `phase` is None if nobody asked for another number of shards, and a storage topic of the topic
    needs the next generation. `waits_for` are the storage topics that must be finished before.
    `since` is the time at which it was asked for, and `by` who did so; empty otherwise.
    """

    shards: int
    phase: ChangePhase | None
    waits_for: tuple[WaitedFor, ...]
    since: datetime | None
    by: str


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """A subscription, with its workers and what waits in its queues.

    `owners` has the owner of each shard, None for a shard that no worker owns. `opened` is the
    number of storage topics of the topic that it reads, or that the next worker opens; `closed` is
    the next one, if another generation has to read it. `following` is that generation, or the one
    that was asked for, and `fed` are the older storage topics of RQ and DLQ that shards are fed
    from. `requests` is the number of pending requests of operators. With `topic_deleted` the
    backlog is not known. `endpoint` is where it delivers over HTTP; None for a handler. `queue` is
    True for the consumer of a queue. `held_back` is the time at which its throttle last held a
    message back; None if it never did, or is off.
    """

    name: str
    topic: str
    topic_deleted: bool
    created: datetime
    start: str
    shards: int
    generation: int
    on_dead_letter: OnDeadLetter
    retry: Retry
    filter: str | None
    endpoint: Endpoint | None
    paused: Pause | None
    workers: tuple[SubscriptionWorker, ...]
    owners: tuple[ShardOwner | None, ...]
    requests: int
    opened: int
    closed: ClosedStorage | None = None
    backlog: Backlog = NO_BACKLOG
    queue: bool = False
    following: NextShards | None = None
    fed: tuple[FedStorage, ...] = ()
    load: LoadControl = UNLIMITED
    held_back: datetime | None = None

    @property
    def kind(self) -> str:
        """What people call it: ``queue`` or ``subscription``."""
        return "queue" if self.queue else "subscription"

    @property
    def unattended(self) -> tuple[int, ...]:
        """The shards that no worker owns."""
        return tuple(shard for shard, owner in enumerate(self.owners) if owner is None)


def describe(backend: Backend, name: str) -> SubscriptionInfo:
    """Return a subscription. Raises `UnknownSubscription`."""
    return read_again_if_deleted(backend, name, lambda: _describe(backend, name))


def _describe(backend: Backend, name: str) -> SubscriptionInfo:
    definition = read_definition(backend, name).definition
    try:
        stored = find_subscription(backend, name)
    except UnknownTopic:
        stored = None
    owners = shard_owners(backend, name, definition)
    info = SubscriptionInfo(
        name,
        definition.topic,
        stored is None,
        utc_time(definition.created_ms),
        definition.start,
        definition.shards,
        definition.generation,
        definition.policy,
        definition.retry,
        definition.filter,
        definition.endpoint,
        find_pause(backend, name),
        workers(backend, name, owners),
        tuple(owners.get(shard) for shard in range(definition.shards)),
        len(backend.store.scan(f"{REQUESTS}{name}/")),
        definition.opened,
        queue=definition.queue,
        load=definition.load,
        held_back=last_held_back(backend, name) if definition.load.throttle else None,
    )
    if stored is None:
        return info
    stored = as_opened(stored)
    return replace(
        info,
        opened=stored.definition.opened,
        closed=_closed(backend, stored),
        following=_following(backend, stored),
        fed=tuple(fed_storages(backend, stored)),
        backlog=read_backlog(backend, stored),
    )


def _following(backend: Backend, stored: StoredSubscription) -> NextShards | None:
    change, following = stored.definition.change, next_generation(stored)
    if following is None:
        return None
    waits_for = tuple(waited_for(backend, stored, following))
    if change is None:
        return NextShards(following.shards, None, waits_for, None, "")
    since = utc_time(change.since_ms) if change.since_ms else None
    return NextShards(following.shards, change.phase, waits_for, since, change.by)


def last_held_back(backend: Backend, name: str) -> datetime | None:
    """Return when the throttle of a subscription last held a message back; None for never."""
    counts = [decode_counts(value) for _, value in scan_all(backend.table, counts_table(name))]
    latest_ms = max((each.held_ms for each in counts), default=0)
    return utc_time(latest_ms) if latest_ms else None


def _closed(backend: Backend, stored: StoredSubscription) -> ClosedStorage | None:
    storage = closed_storage(stored)
    if storage is None:
        return None
    definition, main = stored.definition, stored.main.definition
    partitions = [
        Partition(definition.topic, index, number)
        for index in range(storage, main.pointer + 1)
        for number in range(main.storage[index].partitions)
    ]
    ledgers = read_ledgers(backend, stored, partitions)
    return ClosedStorage(
        storage,
        main.storage[storage].partitions,
        count_unacknowledged(backend, ledgers, partitions),
        tuple(valid_shards(definition.strategy, main.router, used_shapes(main))),
    )
