"""What a change of the number of shards, or a scaling of the topic, means before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from tailrace.backend.contract import Backend
from tailrace.subscription.layout.generation import NextGeneration, asked_generation
from tailrace.subscription.layout.keys import KeyShards
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.generations.asking import asked_change
from tailrace.subscription.store.generations.feeders import messages_by_shard
from tailrace.subscription.store.generations.opening import queue_shapes
from tailrace.subscription.store.generations.waiting import WaitedFor, redefined, waited_for
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.names import retry_queue
from tailrace.topic.router import HASHES

_SAMPLE: Final = 1 << 16
"""The number of hashes that are tried for the part of the keys that move."""

_STEP: Final = 0x9E3779B1
"""Multiples of this prime, modulo `HASHES`, are spread evenly over the hashes and over their
remainders."""


@dataclass(frozen=True, slots=True)
class AddedStorage:
    """A storage topic that is added to a queue."""

    queue: Queue
    storage: int
    partitions: int


@dataclass(frozen=True, slots=True)
class FedStorage:
    """An older storage topic of a queue, from which shards are fed: how many messages it holds, and
    which shards have them."""

    queue: Queue
    storage: int
    messages: int
    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShardsPlan:
    """What a change to a number of shards does, if it began now.

    The present generation works on until the storage topics of `waits_for` are finished. `opened`
    is the number of storage topics of the topic that the next one reads. `moved` is the part of the
    keys that get another shard. `adds` are storage topics that RQ and DLQ get, and `feeds` those
    that hold messages whose shards change, and are fed from until they are empty. `before` is the
    present number of shards; if it is `shards`, nothing changes.
    """

    subscription: str
    before: int
    shards: int
    generation: int
    opened: int
    waits_for: tuple[WaitedFor, ...]
    moved: float
    adds: tuple[AddedStorage, ...]
    feeds: tuple[FedStorage, ...]


def plan_shards(
    backend: Backend, stored: StoredSubscription, shards: int, *, uneven: bool
) -> ShardsPlan:
    """Return what `ask_for_shards` would do. Raises the same errors."""
    definition = stored.definition
    if asked_change(stored, shards, uneven=uneven) is None:
        opened, generation = definition.opened, definition.generation
        return ShardsPlan(stored.name, shards, shards, generation, opened, (), 0.0, (), ())
    following = asked_generation(stored.main_topic, shards, uneven=uneven)
    return plan_generation(backend, stored, following)


def plan_generation(
    backend: Backend, stored: StoredSubscription, following: NextGeneration
) -> ShardsPlan:
    """Return what the change to a generation does."""
    definition, after = stored.definition, redefined(stored, following)
    return ShardsPlan(
        stored.name,
        definition.shards,
        following.shards,
        after.generation,
        following.opened,
        tuple(waited_for(backend, stored, following)),
        moved_part(stored.keys, stored._replace(definition=after).keys),
        tuple(_added(stored, following)),
        tuple(_fed(backend, stored, following)),
    )


def fed_storages(backend: Backend, stored: StoredSubscription) -> list[FedStorage]:
    """Return the storage topics that the present generation is fed from, and that are not empty."""
    return list(_fed_by(backend, stored, stored))


def moved_part(before: KeyShards, after: KeyShards) -> float:
    """Return the part of the keys whose shard has another number."""
    sample = np.arange(_SAMPLE, dtype=np.int64) * _STEP % HASHES
    return float((before.of_hashes(sample) != after.of_hashes(sample)).mean())


def _added(stored: StoredSubscription, following: NextGeneration) -> Iterator[AddedStorage]:
    for name, queue, shape in queue_shapes(stored, redefined(stored, following)):
        if shape != queue.definition.shape:
            kind = Queue.RQ if name == retry_queue(stored.name) else Queue.DLQ
            yield AddedStorage(kind, len(queue.definition.storage), shape.partitions)


def _fed(
    backend: Backend, stored: StoredSubscription, following: NextGeneration
) -> Iterator[FedStorage]:
    after = stored._replace(definition=redefined(stored, following))
    return _fed_by(backend, stored, after)


def _fed_by(
    backend: Backend, stored: StoredSubscription, after: StoredSubscription
) -> Iterator[FedStorage]:
    """Yield what shards of a generation are fed from; `stored` is the present one."""
    for kind, queue in ((Queue.RQ, stored.rq), (Queue.DLQ, stored.dlq)):
        for storage in after.fed_storage(queue):
            partitions = after.queue_partitions(kind, storage)
            ledgers = read_ledgers(backend, stored, partitions)
            messages = 0
            shards: set[int] = set()
            for each in partitions:
                own = messages_by_shard(backend, stored, after.keys, each, ledgers[each])
                shards |= own.keys()
                messages += sum(len(offsets) for found in own.values() for offsets in found)
            if messages:
                yield FedStorage(kind, storage, messages, tuple(sorted(shards)))
