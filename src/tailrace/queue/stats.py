"""How many messages of a queue had which end, in records, and whether the numbers add up.

The counts of ends are stored by the owners of shards, each in the commit that acknowledges the
messages. What waits is counted in the logs. So the two are independent of each other, and a message
that was lost or counted twice shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from tailrace.backend.contract import Backend
from tailrace.backend.table_scan import scan_all
from tailrace.message import Partition
from tailrace.subscription.shard.commit.counts import ShardCounts, counts_table, decode_counts
from tailrace.subscription.shard.permits import decode_permits, permits_key
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.generations.opening import as_opened
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.owners import shard_owners
from tailrace.subscription.store.pause import pause_version
from tailrace.topic.composite import DeletedPartition
from tailrace.topic.ledger import Progress, ledger_table
from tailrace.topic.record_count import amount_left, amount_within


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """Numbers of messages.

    `inserted` were pushed, and `routed` of them are in streams that a shard reads. `emitted` counts
    calls, those of further attempts included, and `failed` those that failed. Each message is
    `acked` (handled), `filtered`, `discarded` by an operator, `dead` (in DLQ), `expired` (removed
    before it was handled), `retrying` (in RQ), `in_flight` or `ready`. `skipped` ones are among
    `acked`: at most once, their call did not end before their worker did. `passed` ones were passed
    over by offset resets, less those that a reset has made to be handled again.
    """

    inserted: int = 0
    routed: int = 0
    emitted: int = 0
    failed: int = 0
    acked: int = 0
    filtered: int = 0
    discarded: int = 0
    dead: int = 0
    expired: int = 0
    retrying: int = 0
    in_flight: int = 0
    ready: int = 0
    skipped: int = 0
    passed: int = 0

    @property
    def accounted(self) -> int:
        """The sum of all ends and places of messages. When nothing moves, it is `inserted`."""
        ended = self.acked + self.filtered + self.discarded + self.expired + self.passed
        return ended + self.dead + self.retrying + self.in_flight + self.ready

    def plus(self, other: MessageCounts) -> MessageCounts:
        """Return the sums of two counts."""
        sums = (getattr(self, each.name) + getattr(other, each.name) for each in fields(self))
        return MessageCounts(*sums)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The counts of a queue and of its shards, and the number of its consumers.

    `quiet` is True if nothing changed while they were counted; otherwise the numbers are of a short
    time and need not add up. `standby` is the number of consumers that have no shard.
    """

    total: MessageCounts
    shards: tuple[MessageCounts, ...]
    quiet: bool
    consumers: int
    standby: int

    @property
    def conserved(self) -> bool | None:
        """True if every message is accounted for, once; None if that cannot be told because the
        queue is not quiet."""
        return self.total.inserted == self.total.accounted if self.quiet else None


def read_stats(backend: Backend, stored: StoredSubscription, consumers: int) -> QueueStats:
    """Count the messages of a queue that has this many consumers."""
    stored = as_opened(stored)
    definition = stored.definition
    before = _read_progress(backend, stored.name)
    counts = {key.decode(): decode_counts(value) for key, value in before.counts}
    owners = shard_owners(backend, stored.name, definition)
    pause = pause_version(backend, stored.name)
    streams = [stored.streams(shard) for shard in range(definition.shards)]
    partitions = [
        where for each in streams for where in (*each.mq, *each.deleted, *each.rq, *each.dlq)
    ]
    ledgers = read_ledgers(backend, stored, partitions)
    shards = tuple(
        _shard_counts(
            backend,
            stored.name,
            own,
            ledgers,
            mq=each.mq,
            deleted=_deleted(stored, each.deleted),
            rq=each.rq,
            dlq=each.dlq,
            calls=shard in owners and not (pause and own.quiet >= pause),
        )
        for shard, each in enumerate(streams)
        for own in (counts.get(stored.unit(shard), ShardCounts()),)
    )
    total = _ended_generations(counts, stored)
    for each in shards:
        total = total.plus(each)
    closed = read_ledgers(backend, stored, _closed_partitions(stored))
    inserted = sum(backend.log.amount(where).records for where in closed)
    waiting = sum(amount_left(backend.log, *each).records for each in closed.items())
    total = total.plus(MessageCounts(inserted=inserted, ready=waiting))
    quiet = _read_progress(backend, stored.name) == before
    standby = consumers - len({owner.worker for owner in owners.values()})
    return QueueStats(total, shards, quiet, consumers, max(0, standby))


def _ended_generations(
    counts: Mapping[str, ShardCounts], stored: StoredSubscription
) -> MessageCounts:
    """Return the ends of messages that shards of earlier generations counted."""
    present = set(stored.units)
    ended = ShardCounts()
    for unit, own in counts.items():
        if unit not in present:
            ended = ended.plus(own.taken_over())
    return MessageCounts(
        emitted=ended.emitted,
        failed=ended.failed,
        acked=ended.acked,
        filtered=ended.filtered,
        discarded=ended.discarded,
        skipped=ended.skipped,
        passed=ended.passed,
    )


def _shard_counts(
    backend: Backend,
    subscription: str,
    counts: ShardCounts,
    ledgers: dict[Partition, Progress],
    *,
    mq: Iterable[Partition],
    deleted: Mapping[Partition, DeletedPartition],
    rq: Iterable[Partition],
    dlq: Iterable[Partition],
    calls: bool,
) -> MessageCounts:
    """Count the messages of a shard. It `calls` some if it has an owner that is not quiet."""
    log = backend.log
    waiting = in_flight = 0
    inserted = expired = 0
    for where, each in deleted.items():
        unread = sum(after - first for first, after in ledgers[where].holes(each.end))
        inserted += each.records
        expired += min(unread, each.records)
    for where in mq:
        # One end for both counts: others may push between the two.
        start, end, _ = log.bounds(where)
        inserted += start + log.amount(where, start, end).records
        waiting += amount_within(log, where, ledgers[where].holes(end)).records
        expired += sum(after - first for first, after in ledgers[where].holes(start))
        if calls:
            permits = decode_permits(backend.table.get(*permits_key(subscription, where)))
            in_flight += sum(not ledgers[where].acked(offset) for offset in permits.offsets)
    in_flight = min(in_flight, waiting)
    return MessageCounts(
        inserted=inserted,
        routed=inserted,
        emitted=counts.emitted,
        failed=counts.failed,
        acked=counts.acked,
        filtered=counts.filtered,
        discarded=counts.discarded,
        dead=sum(amount_left(log, where, ledgers[where]).records for where in dlq),
        expired=expired,
        retrying=sum(amount_left(log, where, ledgers[where]).records for where in rq),
        in_flight=in_flight,
        ready=waiting - in_flight,
        skipped=counts.skipped,
        passed=counts.passed,
    )


def _deleted(
    stored: StoredSubscription, partitions: Iterable[Partition]
) -> dict[Partition, DeletedPartition]:
    """Return what is known of deleted partitions of the topic."""
    deleted = stored.main.definition.deleted
    return {where: deleted[where.storage][where.number] for where in partitions}


class _StoredProgress(NamedTuple):
    """The counts of a queue's shards and its ledgers, as they are stored. Every commit of an owner
    that moves or ends a message changes one of them."""

    counts: list[tuple[bytes, bytes]]
    ledgers: list[tuple[bytes, bytes]]


def _read_progress(backend: Backend, subscription: str) -> _StoredProgress:
    return _StoredProgress(
        list(scan_all(backend.table, counts_table(subscription))),
        list(scan_all(backend.table, ledger_table(worker_group(subscription)))),
    )


def _closed_partitions(stored: StoredSubscription) -> list[Partition]:
    """Return the partitions of the storage topics that no shard reads yet."""
    definition, main = stored.definition, stored.main.definition
    return [
        Partition(definition.topic, storage, number)
        for storage in range(definition.opened, main.pointer + 1)
        for number in range(main.storage[storage].partitions)
    ]
