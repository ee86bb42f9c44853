"""The ledgers of feeders, written for the next generation.

All owners are fenced meanwhile, so nothing that is read here changes, and to write it twice changes
nothing. First the ledger of a partition gets what all its feeders have done. Then every shard of
the next generation that has messages there gets a ledger in which all others are acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.backend.contract import Backend, TableKey
from tailrace.backend.table_scan import scan_prefix
from tailrace.message import Partition
from tailrace.subscription.layout.feeding import feeder_ledger, merged
from tailrace.subscription.layout.keys import KeyShards
from tailrace.subscription.shard.moved_record import origin_in
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.ledgers import read_feeders
from tailrace.subscription.store.names import (
    dead_letter_queue,
    retry_queue,
    worker_group,
)
from tailrace.subscription.store.reading import read_unacknowledged
from tailrace.topic.composite import Definition
from tailrace.topic.ledger import Progress, ledger_table
from tailrace.topic.router import NO_KEY, hash_keys


def next_ledgers(
    backend: Backend, stored: StoredSubscription, after: StoredSubscription
) -> dict[TableKey, bytes | None]:
    """Return the entries of ledgers that the next generation begins with.

    Ledgers of feeders of earlier generations than this one are removed.
    """
    name, consumer = stored.name, worker_group(stored.name)
    feeders = read_feeders(backend, name, stored.definition.generation)
    writes = _leftovers(backend, stored)
    for topic, queue, fed in (
        (retry_queue(name), stored.rq.definition, after.fed_storage(stored.rq)),
        (dead_letter_queue(name), stored.dlq.definition, after.fed_storage(stored.dlq)),
    ):
        for partition in _partitions(topic, queue):
            base = Progress.load(backend.table, consumer, partition)
            if partition in feeders:
                end = backend.log.bounds(partition).end
                base = merged(base, list(feeders[partition].values()), end)
                writes |= base.writes()
            if partition.storage in fed:
                writes |= _feeder_ledgers(backend, after, partition, base)
    return writes


def messages_by_shard(
    backend: Backend,
    stored: StoredSubscription,
    keys: KeyShards,
    partition: Partition,
    progress: Progress,
) -> dict[int, list[npt.NDArray[np.int64]]]:
    """Return the offsets of the unacknowledged messages of a partition of RQ or DLQ, in order, by
    the shard of their keys."""
    found: dict[int, list[npt.NDArray[np.int64]]] = {}
    for records in read_unacknowledged(backend, worker_group(stored.name), partition, progress):
        shards, offsets = _shards(keys, records), records["offset"].to_numpy()
        for shard in np.unique(shards):
            found.setdefault(int(shard), []).append(offsets[shards == shard])
    return found


def _feeder_ledgers(
    backend: Backend, after: StoredSubscription, partition: Partition, base: Progress
) -> dict[TableKey, bytes | None]:
    consumer, end = worker_group(after.name), backend.log.bounds(partition).end
    writes: dict[TableKey, bytes | None] = {}
    own = messages_by_shard(backend, after, after.keys, partition, base)
    for shard, offsets in own.items():
        each = np.concatenate(offsets).tolist()
        writes |= feeder_ledger(consumer, partition, after.unit(shard), each, end).writes()
    return writes


def _shards(keys: KeyShards, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the shards of records of RQ or DLQ. Without a key, where they were pushed decides."""
    hashes = hash_keys(records["key"])
    unkeyed = np.flatnonzero(hashes == NO_KEY)
    shards = keys.of_hashes(np.where(hashes == NO_KEY, 0, hashes))
    headers: Any = records["headers"]
    for row in unkeyed.tolist():
        pushed = origin_in(dict(headers[row].as_py())).partition
        shards[row] = keys.of_pushed(pushed.storage, pushed.number)
    return shards


def _partitions(topic: str, definition: Definition) -> Iterator[Partition]:
    for storage in definition.storages:
        for number in range(definition.storage[storage].partitions):
            yield Partition(topic, storage, number)


def _leftovers(backend: Backend, stored: StoredSubscription) -> dict[TableKey, bytes | None]:
    """Return the removal of the feeders' ledgers of all generations but this one."""
    table = ledger_table(worker_group(stored.name))
    kept = f"@{stored.definition.generation}.".encode()
    found = scan_prefix(backend.table, table, b"@")
    return {TableKey(table, key): None for key, _ in found if not key.startswith(kept)}
