"""Subscriptions described: in one line, or with their workers, shards and blocked keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tailrace.clock import utc_time
from tailrace.errors import UnknownSubscription
from tailrace.group.store.history import HistoryLine, read_history
from tailrace.hub.hub import Hub
from tailrace.operations.subscription.health import SubscriptionState, judge, lag_of
from tailrace.operations.subscription.next_generation import change_text
from tailrace.operations.subscription.settings import SubscriptionSettings
from tailrace.subscription.store.backlog import BlockedKey
from tailrace.subscription.store.describe import (
    ClosedStorage,
    NextShards,
    SubscriptionInfo,
    describe,
)
from tailrace.subscription.store.generations.plan import FedStorage
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.owners import SubscriptionWorker
from tailrace.subscription.store.pause import Pause


@dataclass(frozen=True, slots=True)
class SubscriptionSummary:
    """A subscription in one line.

    `lag` is the number of messages to deliver: those of the topic (`mq`), of the retry queue
    (`rq`), and of storage topics that the next generation reads. `dlq` is the number of dead
    letters, and of the messages behind them. `queue` is True for the consumer of a queue.
    """

    name: str
    topic: str
    topic_deleted: bool
    state: SubscriptionState
    workers: int
    shards: int
    lag: int
    mq: int
    rq: int
    dlq: int
    retrying_keys: int
    blocked_keys: int
    paused: bool
    queue: bool = False


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """A shard: the worker that owns it, and its messages in each queue."""

    shard: int
    owner: str | None
    epoch: int | None
    mq: int
    rq: int
    dlq: int


@dataclass(frozen=True, slots=True)
class BlockedKeySummary:
    """A blocked key: its dead letter by position in the topic, and the messages behind it."""

    key: str
    letter: str
    since: datetime
    attempts: int
    behind: int
    error: str

    @classmethod
    def of(cls, blocked: BlockedKey) -> BlockedKeySummary:
        """Return a blocked key of a backlog."""
        head = blocked.head
        return cls(blocked.key, head.origin, head.queued, head.attempts, blocked.behind, head.error)


@dataclass(frozen=True, slots=True)
class PauseSummary:
    """A pause: why, by whom and since when."""

    reason: str
    by: str
    since: datetime

    @classmethod
    def of(cls, pause: Pause) -> PauseSummary:
        """Return a stored pause."""
        return cls(pause.reason, pause.by, utc_time(pause.since_ms))


@dataclass(frozen=True, slots=True)
class SubscriptionDetail:
    """A subscription with its settings, workers and shards.

    `why` describes its state. `oldest` is the time at which the oldest message that waits was
    pushed. `requests` counts the requests of operators that workers have not carried out yet.
    `following` is the next generation if one is to come, and `changes` says so in words. `fed` are
    the older storage topics of RQ and DLQ that shards are fed from.
    `blocked` names some of the blocked keys, the oldest first.
    """

    summary: SubscriptionSummary
    why: str
    since: datetime | None
    settings: SubscriptionSettings
    created: datetime
    paused: PauseSummary | None
    oldest: datetime | None
    requests: int
    closed: ClosedStorage | None
    generation: int
    following: NextShards | None
    changes: str
    fed: tuple[FedStorage, ...]
    workers: tuple[SubscriptionWorker, ...]
    shards: tuple[ShardSummary, ...]
    blocked: tuple[BlockedKeySummary, ...]


def describe_each(hub: Hub) -> list[SubscriptionInfo]:
    """Return all subscriptions, by name, without those that are deleted meanwhile."""
    found = []
    for name in hub.subscriptions():
        try:
            found.append(describe(hub.backend, name))
        except UnknownSubscription:
            continue
    return found


def list_subscriptions(hub: Hub) -> list[SubscriptionSummary]:
    """Return every subscription in one line, by name, without those of queues."""
    return [summarize(hub, info) for info in describe_each(hub) if not info.queue]


def show_subscription(hub: Hub, name: str) -> SubscriptionDetail:
    """Return a subscription. Raise `UnknownSubscription` if there is none."""
    definition = hub.subscription(name).definition
    info = describe(hub.backend, name)
    health = judge(hub, info)
    return SubscriptionDetail(
        summary=summarize(hub, info),
        why=health.why,
        since=health.since,
        settings=SubscriptionSettings.of(definition),
        created=info.created,
        paused=None if info.paused is None else PauseSummary.of(info.paused),
        oldest=info.backlog.oldest,
        requests=info.requests,
        closed=info.closed,
        generation=info.generation,
        following=info.following,
        changes="" if info.following is None else change_text(info),
        fed=info.fed,
        workers=info.workers,
        shards=tuple(shards_of(info)),
        blocked=tuple(map(BlockedKeySummary.of, info.backlog.blocked)),
    )


def read_events(hub: Hub, name: str, count: int) -> list[HistoryLine]:
    """Return the newest events of a subscription's workers, at most `count`, the newest last.

    The `partition` of an event is a shard, as ``0.3``: shard 3 of generation 0.
    """
    return read_history(hub.backend, worker_group(hub.subscription(name).name), count)


def summarize(hub: Hub, info: SubscriptionInfo) -> SubscriptionSummary:
    """Return a subscription in one line."""
    backlog = info.backlog
    return SubscriptionSummary(
        name=info.name,
        topic=info.topic,
        topic_deleted=info.topic_deleted,
        state=judge(hub, info).state,
        workers=len(info.workers),
        shards=info.shards,
        lag=lag_of(info),
        mq=backlog.mq,
        rq=backlog.rq,
        dlq=backlog.dlq,
        retrying_keys=backlog.retrying_keys,
        blocked_keys=backlog.blocked_keys,
        paused=info.paused is not None,
        queue=info.queue,
    )


def shards_of(info: SubscriptionInfo) -> list[ShardSummary]:
    """Return the shards with their owners and messages; none if the topic was deleted."""
    return [
        ShardSummary(
            shard,
            None if owner is None else owner.worker,
            None if owner is None else owner.epoch,
            waiting.mq,
            waiting.rq,
            waiting.dlq,
        )
        for shard, (owner, waiting) in enumerate(
            zip(info.owners, info.backlog.shards, strict=False)
        )
    ]
