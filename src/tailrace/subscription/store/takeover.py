"""Everything that a new owner of a shard reads, in order.

The fence of the shard is raised by its grant, before any of these reads: what an earlier owner has
not stored by now it will never store. First the ledgers; then the keys of the unacknowledged
messages in RQ and DLQ, and what may have been in flight. Only then anything is called.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.backend.contract import Backend
from tailrace.backend.table_scan import scan_prefix
from tailrace.delivery.handed_out import read_handed_out
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
from tailrace.subscription.shard.intake import HandedOut
from tailrace.subscription.shard.lag import LaggingKeys
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.shard.takeover import Takeover
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.reading import read_lagging
from tailrace.topic.ledger import Progress


def read_takeover(backend: Backend, stored: StoredSubscription, shard: int) -> Takeover:
    """Read everything that is stored for a shard."""
    streams = stored.streams(shard)
    ledgers = read_ledgers(backend, stored.name, (*streams.mq, *streams.rq, *streams.dlq))

    def lagging(partitions: Iterable[Partition]) -> list[LaggingKeys]:
        return [
            LaggingKeys(each, list(read_lagging(backend, each, ledgers[each])))
            for each in partitions
        ]

    attempts = _attempts(backend, stored.name, streams)
    blocks = stored.definition.policy is OnDeadLetter.BLOCK
    return Takeover(
        streams,
        ledgers,
        rq=lagging(streams.rq),
        dlq=lagging(streams.dlq if blocks else ()),
        handed_out=read_bounds(backend, stored.name, streams),
        attempts=attempts,
        ended=_ended(backend, attempts.values()),
    )


def read_ledgers(
    backend: Backend, subscription: str, partitions: Iterable[Partition]
) -> dict[Partition, Progress]:
    """Return the progress of a subscription in some partitions."""
    consumer = worker_group(subscription)
    return {each: Progress.load(backend.table, consumer, each) for each in partitions}


def read_bounds(
    backend: Backend, subscription: str, streams: ShardStreams
) -> dict[Partition, HandedOut]:
    """Return what may have been in flight in the partitions of MQ, where anything may."""
    found = {}
    for each in streams.mq:
        bound = read_handed_out(backend.table, worker_group(subscription), str(each))
        if bound:
            found[each] = HandedOut(bound, backend.log.bounds(each).end)
    return found


def _ended(backend: Backend, attempts: Iterable[Attempts]) -> frozenset[str]:
    """Return the processes that began calls and have ended."""
    workers = {each.worker for each in attempts if each.begun is Begun.ALONE}
    return frozenset(each for each in workers if backend.holder(HOLDS + each) is None)


def _attempts(backend: Backend, subscription: str, streams: ShardStreams) -> dict[Origin, Attempts]:
    table = attempts_table(subscription)
    return {
        origin_of_key(key): decode_attempts(value)
        for partition in streams.mq
        for key, value in scan_prefix(backend.table, table, attempts_prefix(partition))
    }
