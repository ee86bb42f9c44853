"""The shapes of RQ and DLQ: those of the newest storage topic that the subscription has opened.

Count, K and router are copied. K is never derived from the queue's own history: a subscription that
was made on a topic that was scaled before would disagree with itself.
"""

from __future__ import annotations

import msgspec

from tailrace.errors import InvalidValue
from tailrace.subscription.layout.assignment import Assignment
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import PARTITIONS_MAX, Shape, check_count, next_shape
from tailrace.topic.router import RouterKind


def queue_shape(newest: Shape, shards: int, partitions: int | None, option: str) -> Shape:
    """Return the shape of a queue for the newest opened storage topic of the main topic.

    Without `partitions` it is a copy. `InvalidValue` names the `option` of a number that is not a
    multiple of the number of shards.
    """
    if partitions is None:
        return newest
    check_count(partitions, any_count=True)
    if partitions % shards:
        raise InvalidValue(option, partitions, f"a multiple of the number of shards, {shards}")
    return next_shape(newest, partitions)


def next_queue_shape(
    strategy: Assignment, kind: RouterKind, newest: Shape, shards: int, partitions: int | None
) -> Shape:
    """Return the shape in which a queue continues with this number of shards.

    Without `partitions` it is a copy of the newest opened storage topic. Otherwise it has the least
    multiple of the number of shards that is not less, if every key has the same shard then; if not,
    it is a copy too.
    """
    if partitions is None:
        return newest
    count = -(-partitions // shards) * shards
    if count > PARTITIONS_MAX:
        return newest
    shape = next_shape(newest, count)
    return shape if strategy.consistent(kind, (shape, newest), shards) else newest


def first_queue(main: Definition, shape: Shape, *, created_ms: int, identity: str) -> Definition:
    """Return the definition of a new queue with one storage topic, for messages of the main
    topic."""
    return Definition(main.router, main.content_type, (shape,), 0, created_ms, identity)


def switched_queue(queue: Definition, shape: Shape) -> Definition:
    """Return the definition of a queue that continues in a new storage topic of this shape."""
    storage = (*queue.storage, shape)
    return msgspec.structs.replace(queue, storage=storage, pointer=len(storage) - 1)
