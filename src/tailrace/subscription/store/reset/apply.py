"""What a reset writes to the tables, under the fence of its subscription.

First the attempts of messages that are not called again, in any number of transactions. Then, in
one transaction with the audit line: the ledgers, the numbers of the partitions, the counts of the
shards, and that all of this is written. So it is written once, however often it is tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import Backend, Fence, TableKey, Transaction
from tailrace.backend.table_scan import scan_prefix
from tailrace.clock import utc_time
from tailrace.log.columns import records_of
from tailrace.message import Partition
from tailrace.subscription.shard.attempts import (
    Origin,
    attempts_key,
    attempts_prefix,
    attempts_table,
    origin_of_key,
    trace_key,
)
from tailrace.subscription.shard.commit.counts import counts_key, decode_counts, encode_counts
from tailrace.subscription.shard.moved_record import origin_in
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.ledgers import read_feeders, read_ledgers
from tailrace.subscription.store.reset.entry import ResetEntry
from tailrace.subscription.store.reset.numbers import (
    applied_key,
    encode_number,
    number_key,
    read_reset_number,
)
from tailrace.topic.audit_log import AuditEntry, commit_audited
from tailrace.topic.composite import Definition
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import batches_within
from tailrace.topic.record_count import amount_within

CHUNK: Final = 1_000
"""The most entries of attempts that one transaction removes."""

Writes = dict[TableKey, bytes | None]


class ResetWrites(NamedTuple):
    """What a reset writes: the attempts that it removes first, and then the rest."""

    stale: list[TableKey]
    entries: Writes
    audit: AuditEntry
    time_ms: int


def is_applied(backend: Backend, subscription: str, reset: ResetEntry) -> bool:
    """True if everything that a reset writes is written."""
    return read_reset_number(backend, applied_key(subscription)) == reset.number


def reset_writes(backend: Backend, stored: StoredSubscription, reset: ResetEntry) -> ResetWrites:
    """Read what a pending reset writes. It needs no fence: only a process that finishes the reset
    can change what is read, and then `apply_reset` is fenced, or the reset is applied."""
    marks = _existing(stored, reset)
    ledgers = read_ledgers(backend, stored, marks)
    feeders = read_feeders(backend, stored.name, stored.definition.generation)
    stale = list(_stale_attempts(backend, stored, reset, ledgers, marks))
    writes: Writes = {}
    passed: dict[Partition, int] = {}
    for where, mark in marks.items():
        before, end = ledgers[where], backend.log.bounds(where).end
        after = before.copy()
        if reset.of is Queue.MQ:
            after.reset(mark)
        else:
            after.ack(0, mark)
        unread = [amount_within(backend.log, where, each.holes(end)) for each in (before, after)]
        passed[where] = unread[0].records - unread[1].records
        writes |= after.writes()
        for feeder in feeders.get(where, {}).values():
            feeder.ack(0, mark)
            writes |= feeder.writes()
    writes |= _counts(backend, stored, reset, passed)
    if reset.of is Queue.MQ:
        writes |= _numbers(backend, stored, reset, marks)
    writes[applied_key(stored.name)] = encode_number(reset.number)
    return ResetWrites(stale, writes, _audit(stored, reset, ledgers, passed), reset.time_ms)


def apply_reset(backend: Backend, writes: ResetWrites, fence: Fence) -> None:
    """Write a reset that is not applied under this fence. The owners of all shards are fenced.
    Raises `Fenced` if another process writes it now."""
    for some in _chunks(writes.stale):
        backend.commit(Transaction(table=some, fence=fence))
    last = Transaction(table=writes.entries, fence=fence)
    commit_audited(backend, last, [writes.audit], writes.time_ms)


def _existing(stored: StoredSubscription, reset: ResetEntry) -> dict[Partition, int]:
    """Return the marks of partitions that were not deleted since the reset was planned."""
    deleted = _definition(stored, reset).deleted
    return {where: at for where, at in reset.partitions.items() if where.storage not in deleted}


def _stale_attempts(
    backend: Backend,
    stored: StoredSubscription,
    reset: ResetEntry,
    ledgers: Mapping[Partition, Progress],
    marks: Mapping[Partition, int],
) -> Iterator[TableKey]:
    """Yield the entries of messages that are not called again as what they were: those of RQ and
    DLQ that are passed, and those of MQ that were about to be called."""
    for where, mark in marks.items():
        if reset.of is Queue.MQ:
            prefix = attempts_prefix(where)
            for key, _ in scan_prefix(backend.table, attempts_table(stored.name), prefix):
                origin = origin_of_key(key)
                if not ledgers[where].acked(origin.offset):  # else it is in RQ or DLQ
                    yield attempts_key(stored.name, origin)
            continue
        for origin in _unacknowledged(backend, where, ledgers[where], mark):
            yield attempts_key(stored.name, origin)
            if reset.of is Queue.DLQ:
                yield trace_key(stored.name, origin)


def _unacknowledged(
    backend: Backend, where: Partition, progress: Progress, mark: int
) -> Iterator[Origin]:
    """Yield the messages of a partition of RQ or DLQ below a mark that are not acknowledged."""
    start = backend.log.bounds(where).start
    for first, after in progress.holes(mark):
        for records in batches_within(backend.log, where, max(first, start), after):
            for record in records_of(records):
                yield origin_in(record.headers or {})


def _chunks(keys: Iterable[TableKey]) -> Iterator[Writes]:
    each = iter(keys)
    while some := dict.fromkeys(islice(each, CHUNK)):
        yield some


def _definition(stored: StoredSubscription, reset: ResetEntry) -> Definition:
    """Return the definition of the topic that is the queue."""
    of = {Queue.MQ: stored.main, Queue.RQ: stored.rq, Queue.DLQ: stored.dlq}[reset.of]
    return of.definition


def _counts(
    backend: Backend,
    stored: StoredSubscription,
    reset: ResetEntry,
    passed: Mapping[Partition, int],
) -> Writes:
    """Return the counts of the shards with the messages that were passed, less those that are to be
    handled again."""
    definition, of = stored.definition, _definition(stored, reset)
    by_shard: Counter[int] = Counter()
    for where, count in passed.items():
        partitions = of.storage[where.storage].partitions
        by_shard[definition.strategy.owner(where.number, definition.shards, partitions)] += count
    writes: Writes = {}
    for shard, count in by_shard.items():
        key = counts_key(stored.name, stored.unit(shard))
        counts = decode_counts(backend.table.get(*key))
        changed = msgspec.structs.replace(counts, passed=counts.passed + count)
        writes[key] = encode_counts(changed)
    return writes


def _numbers(
    backend: Backend,
    stored: StoredSubscription,
    reset: ResetEntry,
    marks: Mapping[Partition, int],
) -> Writes:
    """Return the entries with which the partitions that are not moved keep their numbers."""
    topic, definition = stored.definition.topic, stored.main.definition
    writes: Writes = {}
    for storage in definition.storage_topics(topic):
        if storage.storage >= reset.storages:
            break
        for number in range(storage.partitions):
            where = Partition(topic, storage.storage, number)
            key = number_key(stored.name, where)
            if where in marks:
                writes[key] = None
            elif read_reset_number(backend, key) is None:
                writes[key] = encode_number(reset.before)
    return writes


def _audit(
    stored: StoredSubscription,
    reset: ResetEntry,
    ledgers: Mapping[Partition, Progress],
    passed: Mapping[Partition, int],
) -> AuditEntry:
    unread = sum(count for count in passed.values() if count > 0)
    again = -sum(count for count in passed.values() if count < 0)
    name = "the topic" if reset.of is Queue.MQ else reset.of.name
    return AuditEntry(
        utc_time(reset.time_ms),
        reset.who,
        reset.pid,
        reset.command,
        stored.name,
        before={"marks": {str(where): progress.mark for where, progress in ledgers.items()}},
        after={
            "done": f"{name} reset to {reset.target}: {again:,} more and {unread:,} fewer"
            " messages to handle",
            "reset": stored.definition.reset,
            "marks": reset.marks,
        },
        reason=reset.reason,
    )
