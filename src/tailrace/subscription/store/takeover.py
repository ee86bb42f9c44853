"""Everything that a new owner of a shard reads, in order.

The fence of the shard is raised by its grant, before any of these reads: what an earlier owner has
not stored by now it will never store. First the ledgers; then the keys of the unacknowledged
messages in RQ and DLQ, what may have been in flight, and the requests of operators. Only then
anything is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.backend.contract import Backend
from tailrace.backend.table_scan import scan_prefix
from tailrace.group.store.presence import HOLDS
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
from tailrace.subscription.shard.commit.counts import counts_key, decode_counts
from tailrace.subscription.shard.lag import LaggingKeys
from tailrace.subscription.shard.permits import Permits, decode_permits, permits_key
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.shard.takeover import Takeover
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.reading import read_lagging
from tailrace.subscription.store.requests.entries import read_requests, read_states
from tailrace.topic.ledger import Progress


def read_takeover(backend: Backend, stored: StoredSubscription, shard: int) -> Takeover:
    """Read everything that is stored for a shard."""
    streams = stored.streams(shard)
    ledgers = read_ledgers(backend, stored.name, (*streams.mq, *streams.rq, *streams.dlq))
    consumer = worker_group(stored.name)

    def lagging(partitions: Iterable[Partition]) -> list[LaggingKeys]:
        return [
            LaggingKeys(each, list(read_lagging(backend, consumer, each, ledgers[each])))
            for each in partitions
        ]

    permits = read_permits(backend, stored.name, streams)
    attempts = _attempts(backend, stored.name, streams)
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
        request_states=read_states(backend, stored.name, shard),
        requests=read_requests(backend, stored.name, shard),
        counts=decode_counts(backend.table.get(*counts_key(stored.name, stored.unit(shard)))),
    )


def read_ledgers(
    backend: Backend, subscription: str, partitions: Iterable[Partition]
) -> dict[Partition, Progress]:
    """Return the progress of a subscription in some partitions."""
    consumer = worker_group(subscription)
    return {each: Progress.load(backend.table, consumer, each) for each in partitions}


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


def _attempts(backend: Backend, subscription: str, streams: ShardStreams) -> dict[Origin, Attempts]:
    """Return the attempts of messages, without those of dead letters that are not being called."""
    table = attempts_table(subscription)
    return {
        origin_of_key(key): attempts
        for partition in (*streams.mq, *streams.deleted)
        for key, value in scan_prefix(backend.table, table, attempts_prefix(partition))
        if not (attempts := decode_attempts(value)).at_rest
    }
