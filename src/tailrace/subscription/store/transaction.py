"""The transaction of a shard's commit: appends, what handlers pushed, ledgers, attempts, permits,
counts and the requests of operators, with the audit lines of those that end, under one fence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from tailrace.backend.contract import Backend, Fence, TableKey, Transaction
from tailrace.log.record import Record
from tailrace.message import Partition, Range
from tailrace.subscription.shard.attempts import attempts_key, encode_attempts, trace_key
from tailrace.subscription.shard.commit.commit import Move, ShardCommit
from tailrace.subscription.shard.commit.counts import counts_key, encode_counts
from tailrace.subscription.shard.commit.outputs import Pushed, batches_by_topic
from tailrace.subscription.shard.moved_record import moved_record
from tailrace.subscription.shard.permits import encode_permits, permits_key
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.state import encode_state, state_key
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.names import dead_letter_queue, retry_queue
from tailrace.subscription.store.requests.audit_line import audit_of
from tailrace.topic.audit_log import commit_audited
from tailrace.topic.lineage import Shape, least_hash
from tailrace.topic.routed_batch import RoutedBatch
from tailrace.topic.router import route
from tailrace.topic.target import Target
from tailrace.topic.view import View, follow_switches

FindView: TypeAlias = Callable[[str], View]
"""Returns the view of a topic that a handler pushes to."""


class ShardTargets(NamedTuple):
    """Where the messages of a shard are appended: the newest storage topics of RQ and DLQ."""

    subscription: str
    shard: int
    unit: str
    rq: Target
    dlq: Target
    main: tuple[Shape, ...]
    """The storage topics of MQ: a message without a key is routed by where it was pushed."""

    @classmethod
    def of(cls, stored: StoredSubscription, shard: int) -> ShardTargets:
        """Return the targets of a shard."""
        rq = Target.of(retry_queue(stored.name), *stored.rq)
        dlq = Target.of(dead_letter_queue(stored.name), *stored.dlq)
        main = stored.main.definition.storage
        return cls(stored.name, shard, stored.unit(shard), rq, dlq, main)

    @property
    def queues(self) -> tuple[str, str]:
        """The names of RQ and DLQ."""
        return retry_queue(self.subscription), dead_letter_queue(self.subscription)

    def partition_of(self, move: Move) -> Partition:
        """Return the partition to append a message to."""
        target = self.rq if move.target is Queue.RQ else self.dlq
        if move.key is not None:
            return target.partitions[target.number_of(move.key)]
        pushed = move.origin.partition
        hashed = least_hash(target.router, self.main[pushed.storage], pushed.number)
        shape = target.shape
        return target.partitions[route(target.router, hashed, shape.partitions, shape.k)]


def commit_shard(
    backend: Backend,
    targets: ShardTargets,
    commit: ShardCommit,
    fence: Fence,
    now_ms: int,
    find_view: FindView | None = None,
) -> list[tuple[Partition, int]]:
    """Store a commit in one transaction. Returns where its moves were appended, in order.

    `find_view` returns the views of the topics that handlers pushed to. Raises `Sealed`, with
    nothing written, if RQ or DLQ continue in another storage topic by now.
    """
    places = [targets.partition_of(move) for move in commit.moves]
    records: dict[Partition, list[Record]] = {}
    for move, place in zip(commit.moves, places, strict=True):
        records.setdefault(place, []).append(moved_record(move, targets.subscription, now_ms))
    moved = tuple((place, tuple(moved)) for place, moved in records.items())
    table = _table(targets, commit)
    if not (table or moved or commit.outputs or commit.ended):
        return []
    views, batches = _outputs(commit.outputs, find_view)
    entries = [audit_of(backend, targets.subscription, each, now_ms) for each in commit.ended]

    def attempt() -> list[Range]:
        pushed = [
            part
            for name, each in batches.items()
            for batch in each
            for part in batch.route(views[name].target)
        ]
        since = {**targets.rq.since, **targets.dlq.since}
        for view in views.values():
            since |= view.target.since
        transaction = Transaction((*moved, *pushed), table, fence, since=since)
        if entries:
            return commit_audited(backend, transaction, entries, now_ms)
        return backend.commit(transaction)

    return _offsets(places, follow_switches(views, attempt)[: len(moved)])


def _outputs(
    outputs: Sequence[Pushed], find_view: FindView | None
) -> tuple[dict[str, View], dict[str, list[RoutedBatch]]]:
    """Return the topics of outputs, and what is appended to each, in order."""
    batches = batches_by_topic(outputs)
    assert find_view is not None or not batches, "only handlers with a transaction push"
    return {name: find_view(name) for name in batches} if find_view is not None else {}, batches


def _table(targets: ShardTargets, commit: ShardCommit) -> dict[TableKey, bytes | None]:
    """Return the entries of tables that a commit writes."""
    name = targets.subscription
    table: dict[TableKey, bytes | None] = dict(commit.ledger)
    for origin, attempts in commit.attempts.items():
        table[attempts_key(name, origin)] = encode_attempts(attempts)
    for origin, trace in commit.traces.items():
        table[trace_key(name, origin)] = None if trace is None else trace.encode()
    for partition, offsets in commit.permitted.items():
        table[permits_key(name, partition)] = encode_permits(commit.worker, offsets)
    if commit.counts is not None:
        table[counts_key(name, targets.unit)] = encode_counts(commit.counts)
    for request, state in commit.requests.items():
        table[state_key(name, targets.unit, request)] = encode_state(state)
    return table


def _offsets(places: Sequence[Partition], ranges: Sequence[Range]) -> list[tuple[Partition, int]]:
    following = {landed.partition: landed.start for landed in ranges}
    found = []
    for place in places:
        found.append((place, following[place]))
        following[place] += 1
    return found
