"""Everything that a new owner of a shard reads, in order.

The fence of the shard is raised by its grant, before any of these reads: what an earlier owner has
not stored by now it will never store. First the ledgers; then the keys of the unacknowledged
messages in RQ and DLQ, what may have been in flight, and the requests of operators. Only then
anything is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.backend.contract import Backend
from tailrace.backend.table_scan import scan_all, scan_prefix
from tailrace.delivery.dead_letters.letter import POSITION
from tailrace.group.store.presence import HOLDS
from tailrace.log.columns import records_of
from tailrace.message import Partition
from tailrace.subscription.shard.attempts import (
    Attempts,
    Begun,
    Origin,
    attempts_prefix,
    attempts_table,
    decode_attempts,
    origin_of_key,
)
from tailrace.subscription.shard.commit.counts import (
    ShardCounts,
    counts_key,
    counts_table,
    decode_counts,
)
from tailrace.subscription.shard.lag import LaggingKeys
from tailrace.subscription.shard.moved_record import origin_in
from tailrace.subscription.shard.permits import Permits, decode_permits, permits_key
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.shard.takeover import Takeover
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.ledgers import OwnedLedgers
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.reading import read_lagging, read_unacknowledged
from tailrace.subscription.store.requests.entries import read_requests, read_states
from tailrace.subscription.store.reset.numbers import with_reset_numbers
from tailrace.topic.ledger import Progress


def read_takeover(backend: Backend, stored: StoredSubscription, shard: int) -> Takeover:
    """Read everything that is stored for a shard."""
    streams, ledgers = OwnedLedgers.read(backend, stored, shard)
    streams = with_reset_numbers(backend, stored, streams)
    consumer = worker_group(stored.name)

    def lagging(partitions: Iterable[Partition]) -> list[LaggingKeys]:
        return [
            LaggingKeys(each, list(read_lagging(backend, consumer, each, ledgers[each])))
            for each in partitions
        ]

    permits = read_permits(backend, stored.name, streams)
    attempts = _attempts(backend, stored, streams, ledgers)
    alone = {each.worker for each in attempts.values() if each.begun is Begun.ALONE}
    blocks = stored.definition.policy is OnDeadLetter.BLOCK
    return Takeover(
        streams,
        ledgers,
        rq=lagging(streams.rq),
        dlq=lagging(streams.dlq if blocks else ()),
        permits=permits,
        attempts=attempts,
        ended=ended(backend, {*alone, *permit_workers(permits)}),
        request_states=read_states(backend, stored.name, stored.unit(shard)),
        requests=read_requests(backend, stored.name, shard),
        counts=_counts(backend, stored, shard),
    )


def _counts(backend: Backend, stored: StoredSubscription, shard: int) -> ShardCounts:
    """Return the counts of a shard. One of a new generation begins with its part of what the shards
    before have usually called."""
    name, definition = stored.name, stored.definition
    value = backend.table.get(*counts_key(name, stored.unit(shard)))
    counts = decode_counts(value)
    if value is None and definition.generation:
        before = f"{definition.generation - 1}.".encode()
        found = scan_all(backend.table, counts_table(name))
        rates = [decode_counts(each).usual for key, each in found if key.startswith(before)]
        counts.usual = sum(rates) / definition.shards
    return counts


def read_permits(
    backend: Backend, subscription: str, streams: ShardStreams
) -> dict[Partition, Permits]:
    """Return the messages that an owner may have called in the partitions of MQ."""
    return {
        each: decode_permits(backend.table.get(*permits_key(subscription, each)))
        for each in streams.mq
    }


def permit_workers(permits: Mapping[Partition, Permits]) -> set[str]:
    """Return the processes that may have called messages."""
    return {each.worker for each in permits.values() if each.offsets}


def ended(backend: Backend, workers: Iterable[str]) -> frozenset[str]:
    """Return those of some processes that have ended."""
    return frozenset(each for each in workers if backend.holder(HOLDS + each) is None)


def _attempts(
    backend: Backend,
    stored: StoredSubscription,
    streams: ShardStreams,
    ledgers: Mapping[Partition, Progress],
) -> dict[Origin, Attempts]:
    """Return the attempts of messages, without those of dead letters that are not being called.

    In storage topics of MQ where keys may have other shards by now, which are finished, the shard
    of a message is that of the record in RQ or DLQ.
    """
    other = set(stored.moved_storage)
    found = _attempts_in(
        backend,
        stored.name,
        (each for each in (*streams.mq, *streams.deleted) if each.storage not in other),
    )
    topic, main = stored.definition.topic, stored.main.definition
    candidates = _attempts_in(
        backend,
        stored.name,
        (
            Partition(topic, storage, number)
            for storage in stored.moved_storage
            for number in range(main.storage[storage].partitions)
        ),
    )
    if candidates:
        own = _origins_in(backend, stored.name, (*streams.rq, *streams.dlq), ledgers, candidates)
        found |= {origin: candidates[origin] for origin in own}
    return found


def _attempts_in(
    backend: Backend, subscription: str, partitions: Iterable[Partition]
) -> dict[Origin, Attempts]:
    table = attempts_table(subscription)
    return {
        origin_of_key(key): attempts
        for partition in partitions
        for key, value in scan_prefix(backend.table, table, attempts_prefix(partition))
        if not (attempts := decode_attempts(value)).at_rest
    }


def _origins_in(
    backend: Backend,
    subscription: str,
    partitions: Iterable[Partition],
    ledgers: Mapping[Partition, Progress],
    wanted: Iterable[Origin],
) -> Iterator[Origin]:
    """Yield those of some messages that are in partitions of RQ or DLQ."""
    known = set(wanted)
    names = {f"{each.partition}@{each.offset}".encode() for each in known}
    positions: Any = pa.array(sorted(names), pa.binary())
    for partition in partitions:
        for records in read_unacknowledged(
            backend, worker_group(subscription), partition, ledgers[partition]
        ):
            found: Any = pc.map_lookup(
                records["headers"], query_key=pa.scalar(POSITION), occurrence="first"
            )
            mask: Any = pc.is_in(found, value_set=positions)
            for record in records_of(records.filter(mask)):
                if (origin := origin_in(record.headers or {})) in known:
                    yield origin
