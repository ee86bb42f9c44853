"""The ledgers of a subscription.

    ledger/subscription:NAME     table: an entry PARTITION/… for each partition of MQ, RQ and DLQ,
                                 @UNIT/PARTITION/… for each feeder of an older one of RQ or DLQ

The owner of a shard reads and writes the ledgers of its partitions, and as a feeder those of its
unit. People see what is done by all: see `tailrace.subscription.layout.feeding`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tailrace.backend.contract import Backend
from tailrace.message import Partition
from tailrace.subscription.layout.feeding import merged
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.names import (
    ShardName,
    dead_letter_queue,
    retry_queue,
    worker_group,
)
from tailrace.topic.ledger import Progress, load_units


class OwnedLedgers(NamedTuple):
    """The partitions of a shard, those that it feeds from included, and its ledgers of them."""

    streams: ShardStreams
    ledgers: dict[Partition, Progress]

    @classmethod
    def read(cls, backend: Backend, stored: StoredSubscription, shard: int) -> OwnedLedgers:
        """Read what the owner of a shard has."""
        unit, name, consumer = stored.unit(shard), stored.name, worker_group(stored.name)
        fed = load_units(backend.table, consumer, f"{unit}/").get(unit, {})
        streams = stored.streams(shard)
        rq = _with_fed(streams.rq, set(stored.fed_storage(stored.rq)), fed, retry_queue(name))
        dlq = _with_fed(
            streams.dlq, set(stored.fed_storage(stored.dlq)), fed, dead_letter_queue(name)
        )
        ledgers = {
            each: fed.get(each) or Progress.load(backend.table, consumer, each)
            for each in (*streams.mq, *rq, *dlq)
        }
        return cls(replace(streams, rq=rq, dlq=dlq), ledgers)


def read_ledgers(
    backend: Backend, stored: StoredSubscription, partitions: Iterable[Partition]
) -> dict[Partition, Progress]:
    """Return what is done in some partitions of a subscription."""
    feeders = read_feeders(backend, stored.name, stored.definition.generation)
    consumer = worker_group(stored.name)
    found = {}
    for each in partitions:
        progress = Progress.load(backend.table, consumer, each)
        if each in feeders:
            end = backend.log.bounds(each).end
            progress = merged(progress, list(feeders[each].values()), end)
        found[each] = progress
    return found


def read_ledger(backend: Backend, stored: StoredSubscription, partition: Partition) -> Progress:
    """Return what is done in a partition of a subscription."""
    return read_ledgers(backend, stored, (partition,))[partition]


def read_feeders(
    backend: Backend, name: str, generation: int
) -> dict[Partition, dict[int, Progress]]:
    """Return the ledgers of the feeders of a generation, by partition and shard."""
    if not generation:
        return {}
    found: dict[Partition, dict[int, Progress]] = {}
    for unit, ledgers in load_units(backend.table, worker_group(name), f"{generation}.").items():
        for partition, progress in ledgers.items():
            found.setdefault(partition, {})[ShardName.parse(unit).shard] = progress
    return found


def _with_fed(
    own: Iterable[Partition], fed_storage: set[int], fed: Iterable[Partition], topic: str
) -> tuple[Partition, ...]:
    """Return the partitions of a queue, the oldest storage topic first, with those that are fed
    from instead of those that the shard would have in their storage topics. A storage topic that
    was deleted since is left out."""
    kept = {each for each in own if each.storage not in fed_storage}
    left = {each for each in fed if each.topic == topic and each.storage in fed_storage}
    return tuple(sorted(kept | left))
