"""Queues described: in one line, or with the counts of their shards."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.hub.hub import Hub
from tailrace.operations.queue.accounting import QueueAccounts
from tailrace.operations.subscription.health import SubscriptionState, judge
from tailrace.queue.lifecycle import read_queue
from tailrace.queue.stats import MessageCounts
from tailrace.subscription.store.describe import SubscriptionInfo, describe


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """A queue in one line. `standby` is the number of consumers that have no shard."""

    name: str
    state: SubscriptionState
    consumers: int
    standby: int
    shards: int
    inserted: int
    acked: int
    ready: int
    in_flight: int
    retrying: int
    dead: int
    conserved: bool | None


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A shard of a queue: the consumer that owns it, and its counts."""

    shard: int
    owner: str | None
    counts: MessageCounts


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The counts of a queue and of its shards, and whether they add up.

    `why` describes its state, and `accounting` says if every message is accounted for.
    """

    queue: str
    state: SubscriptionState
    why: str
    consumers: int
    standby: int
    conserved: bool | None
    accounting: str
    total: MessageCounts
    shards: tuple[ShardReport, ...]


def list_queues(hub: Hub) -> list[QueueSummary]:
    """Return every queue in one line, by name. A queue whose topic was deleted is left out."""
    return [
        _summary(hub, info)
        for info in (describe(hub.backend, name) for name in hub.queues())
        if not info.topic_deleted
    ]


def show_stats(hub: Hub, name: str) -> QueueReport:
    """Return the counts of a queue. Raise `UnknownQueue` if there is none."""
    read_queue(hub.backend, name)
    info = describe(hub.backend, name)
    health = judge(hub, info)
    stats = hub.queue(name, strict=True).stats()
    accounts = QueueAccounts.of(stats)
    owners = [None if each is None else each.worker for each in info.owners]
    return QueueReport(
        queue=name,
        state=health.state,
        why=health.why,
        consumers=stats.consumers,
        standby=stats.standby,
        conserved=accounts.conserved,
        accounting=accounts.text,
        total=stats.total,
        shards=tuple(
            ShardReport(shard, owner, counts)
            for shard, (owner, counts) in enumerate(zip(owners, stats.shards, strict=False))
        ),
    )


def _summary(hub: Hub, info: SubscriptionInfo) -> QueueSummary:
    stats = hub.queue(info.name, strict=True).stats()
    total = stats.total
    return QueueSummary(
        name=info.name,
        state=judge(hub, info).state,
        consumers=stats.consumers,
        standby=stats.standby,
        shards=info.shards,
        inserted=total.inserted,
        acked=total.acked,
        ready=total.ready,
        in_flight=total.in_flight,
        retrying=total.retrying,
        dead=total.dead,
        conserved=stats.conserved,
    )
