"""The transaction of a shard's commit: appends, ledgers, attempts and bounds, under one fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.backend.contract import Backend, Fence, TableKey, Transaction
from tailrace.delivery.handed_out import handed_out_key, handed_out_value
from tailrace.log.record import Record
from tailrace.message import Partition, Range
from tailrace.subscription.shard.attempts import attempts_key, encode_attempts
from tailrace.subscription.shard.commit import Move, ShardCommit
from tailrace.subscription.shard.moved_record import moved_record
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.names import dead_letter_queue, retry_queue, worker_group
from tailrace.topic.target import Target


class ShardTargets(NamedTuple):
    """Where the messages of a shard are appended: the newest storage topics of RQ and DLQ."""

    subscription: str
    rq: Target
    dlq: Target
    rq_own: tuple[int, ...]
    dlq_own: tuple[int, ...]
    """The partitions of the shard there, for messages without a key."""

    @classmethod
    def of(cls, stored: StoredSubscription, shard: int) -> ShardTargets:
        """Return the targets of a shard."""
        definition = stored.definition
        rq = Target.of(retry_queue(stored.name), *stored.rq)
        dlq = Target.of(dead_letter_queue(stored.name), *stored.dlq)

        def own(target: Target) -> tuple[int, ...]:
            count = len(target.partitions)
            return tuple(definition.strategy.partitions(shard, definition.shards, count))

        return cls(stored.name, rq, dlq, own(rq), own(dlq))

    def partition_of(self, move: Move) -> Partition:
        """Return the partition to append a message to."""
        target, own = (
            (self.rq, self.rq_own) if move.target is Queue.RQ else (self.dlq, self.dlq_own)
        )
        if move.key is None:
            return target.partitions[own[move.origin.offset % len(own)]]
        return target.partitions[target.number_of(move.key)]


def commit_shard(
    backend: Backend, targets: ShardTargets, commit: ShardCommit, fence: Fence, now_ms: int
) -> list[tuple[Partition, int]]:
    """Store a commit in one transaction. Returns where its moves were appended, in order.

    Raises `Sealed`, with nothing written, if RQ or DLQ continue in another storage topic by now.
    """
    name = targets.subscription
    group = worker_group(name)
    table: dict[TableKey, bytes | None] = dict(commit.ledger)
    for origin, attempts in commit.attempts.items():
        table[attempts_key(name, origin)] = encode_attempts(attempts)
    for partition, bound in commit.handed_out.items():
        table[handed_out_key(group, str(partition))] = handed_out_value(bound)
    places = [targets.partition_of(move) for move in commit.moves]
    appends: dict[Partition, list[Record]] = {}
    for move, place in zip(commit.moves, places, strict=True):
        appends.setdefault(place, []).append(moved_record(move, name, now_ms))
    if not (table or appends):
        return []
    ranges = backend.commit(
        Transaction(
            tuple((place, tuple(records)) for place, records in appends.items()),
            table,
            fence,
            since={**targets.rq.since, **targets.dlq.since},
        )
    )
    return _offsets(places, ranges)


def _offsets(places: Sequence[Partition], ranges: Sequence[Range]) -> list[tuple[Partition, int]]:
    following = {landed.partition: landed.start for landed in ranges}
    found = []
    for place in places:
        found.append((place, following[place]))
        following[place] += 1
    return found
