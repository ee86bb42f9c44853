"""A key's partitions in the topic, in RQ and in DLQ belong to one shard, or creation is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.subscription.layout.agreement import NamedShape, find_disagreement, key_shard
from tailrace.subscription.layout.assignment import CONTIGUOUS, Contiguous, assignment
from tailrace.subscription.layout.mirror import first_queue, queue_shape, switched_queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.generations.opening import closed_storage, opening_of
from tailrace.testing import MemoryBackend
from tailrace.topic.lineage import Shape, next_shape
from tailrace.topic.router import Hashes, RouterKind, hash_key, route
from tests.support.shards import stored, subscribe

KEYS = [f"key-{number}" for number in range(10_000)]
HASHED = np.array([hash_key(key.encode()) for key in KEYS])
STRATEGY = Contiguous()


def make(counts: Sequence[int], router: str = "shard-consistent", **options: Any) -> Hub:
    hub = Hub.from_backend(MemoryBackend())
    topic = hub.create_topic("orders", partitions=counts[0], router=router, any_count=True)
    for count in counts[1:]:
        topic.scale(count, any_count=True)
    subscribe(hub, **options)
    return hub


def agrees(subscription: StoredSubscription) -> bool:
    """True if each of 10,000 keys has one shard, over all storage topics that the subscription
    reads or writes."""
    definition, main = subscription.definition, subscription.main.definition
    shapes = {
        *main.storage[: definition.opened],
        *subscription.rq.definition.storage,
        *subscription.dlq.definition.storage,
    }
    shards = np.array([_shards(main.router, shape, definition.shards) for shape in shapes])
    return bool((shards == shards[0]).all())


def _shards(kind: RouterKind, shape: Shape, shards: int) -> Hashes:
    partitions = route(kind, HASHED, shape.partitions, shape.k)
    owners = [
        STRATEGY.owner(number, shards, shape.partitions) for number in range(shape.partitions)
    ]
    return np.array(owners)[partitions]


@pytest.mark.parametrize(
    ("partitions", "shards", "expected"),
    [
        (7, 2, [range(3), range(3, 7)]),
        (4, 4, [range(1), range(1, 2), range(2, 3), range(3, 4)]),
        (2, 4, [range(0), range(1), range(1, 1), range(1, 2)]),
    ],
)
def test_the_partitions_are_divided_in_order(
    partitions: int, shards: int, expected: list[range]
) -> None:
    found = [STRATEGY.partitions(shard, shards, partitions) for shard in range(shards)]
    assert [list(each) for each in found] == [list(each) for each in expected]


@given(st.integers(1, 200), st.integers(1, 200))
def test_every_partition_has_one_shard(partitions: int, shards: int) -> None:
    owned = [
        (number, shard)
        for shard in range(shards)
        for number in STRATEGY.partitions(shard, shards, partitions)
    ]
    assert owned == [(n, STRATEGY.owner(n, shards, partitions)) for n in range(partitions)]


def test_an_unknown_assignment_is_refused() -> None:
    assert isinstance(assignment(CONTIGUOUS), Contiguous)
    with pytest.raises(InvalidValue, match="contiguous"):
        assignment("random")


@pytest.mark.parametrize("router", ["shard-consistent", "range"])
@pytest.mark.parametrize(
    "counts", [(4,), (4, 12), (2, 10, 4), (12, 4), (8, 12), (4, 12, 24), (6, 6), (7, 10), (1, 2, 3)]
)
def test_over_all_shapes_a_key_has_one_shard_or_creation_is_refused(
    counts: Sequence[int], router: str
) -> None:
    created = 0
    for shards in range(1, counts[-1] + 1):
        try:
            hub = make(counts, router, shards=shards, uneven=True)
        except InvalidValue:
            continue
        created += 1
        assert agrees(stored(hub.backend))
    assert created, "one shard is always possible"


def test_a_refusal_names_a_key_and_the_numbers_that_are_valid() -> None:
    with pytest.raises(InvalidValue) as refused:
        make((4, 12), shards=12)
    text = str(refused.value)
    assert "4, 2, 1" in text
    key = text.partition("key '")[2].partition("'")[0]
    shards = [
        key_shard(STRATEGY, RouterKind.SHARD_CONSISTENT, shape, 12, key)
        for shape in (Shape(4), Shape(12, 3))
    ]
    assert f"shard {shards[0]} in orders/0, {shards[1]} in orders/1" in text
    assert shards[0] != shards[1]


@pytest.mark.parametrize("shards", [0, -1, 13])
def test_a_number_of_shards_beyond_the_partitions_is_refused(shards: int) -> None:
    with pytest.raises(InvalidValue, match="1 to 12"):
        make((12,), shards=shards)


def test_without_a_number_there_is_a_shard_for_each_partition_if_all_keys_agree() -> None:
    assert stored(make((6,)).backend).definition.shards == 6
    assert stored(make((4, 12)).backend).definition.shards == 4


def test_queues_copy_the_factor_of_a_topic_that_was_scaled_before() -> None:
    subscription = stored(make((4, 12)).backend)
    assert subscription.rq.definition.storage == (Shape(12, 3),)
    assert subscription.dlq.definition.storage == (Shape(12, 3),)


def test_a_storage_topic_that_was_added_and_never_switched_to_is_not_opened() -> None:
    hub = Hub.from_backend(MemoryBackend())
    topic = hub.create_topic("orders", partitions=4)
    topic.add_storage_topic(12)
    subscription = subscribe(hub, shards=4)
    assert (subscription.definition.opened, opening_of(subscription)) == (1, None)
    assert subscription.rq.definition.storage == (Shape(4),)
    topic.switch_produce()
    change = opening_of(stored(hub.backend))
    assert change is not None
    hub.backend.store.commit(change)
    subscription = stored(hub.backend)
    assert subscription.rq.definition.storage == (Shape(4), Shape(12, 3))
    assert agrees(subscription)


def test_one_that_was_passed_over_counts_although_it_is_empty() -> None:
    hub = Hub.from_backend(MemoryBackend())
    topic = hub.create_topic("orders", partitions=4)
    topic.add_storage_topic(6)
    topic.scale(12)
    with pytest.raises(InvalidValue, match="disagree"):
        subscribe(hub, shards=4)
    assert agrees(subscribe(hub, shards=1))


def test_numbers_of_partitions_of_queues_are_multiples_of_the_shards_and_agree() -> None:
    with pytest.raises(InvalidValue, match="a multiple of the number of shards, 4"):
        make((4,), shards=4, rq_partitions=6)
    with pytest.raises(InvalidValue, match="disagree"):
        make((12,), shards=4, dlq_partitions=4)
    subscription = stored(make((4,), shards=2, rq_partitions=8, dlq_partitions=4).backend)
    assert subscription.rq.definition.storage == (Shape(8, 2),)
    assert agrees(subscription)


@pytest.mark.parametrize("counts", [(4, 12, 24), (6, 12), (8, 12), (2, 4, 8)])
def test_over_all_numbers_of_partitions_of_queues_a_key_has_one_shard_also_after_a_scaling(
    counts: Sequence[int],
) -> None:
    created = 0
    for shards in range(1, counts[0] + 1):
        for queue in range(shards, 25, shards):
            options: dict[str, Any] = {"rq_partitions": queue, "dlq_partitions": 2 * queue}
            try:
                hub = make(counts[:1], shards=shards, uneven=True, **options)
            except InvalidValue:
                continue
            created += 1
            for count in counts[1:]:
                hub.topic("orders").scale(count)
                change = opening_of(stored(hub.backend))
                if change is not None:
                    hub.backend.store.commit(change)
            assert agrees(stored(hub.backend))
    assert created


def test_a_scaling_that_keeps_the_shards_is_opened_and_another_stays_closed() -> None:
    hub = make((4,), shards=4)
    topic = hub.topic("orders")
    topic.scale(12)
    change = opening_of(stored(hub.backend))
    assert change is not None
    hub.backend.store.commit(change)
    topic.scale(6)
    subscription = stored(hub.backend)
    assert opening_of(subscription) is None
    assert closed_storage(subscription) == 2
    assert subscription.definition.opened == 2
    assert agrees(subscription)


def test_the_older_storage_topic_of_a_queue_is_sealed_by_the_same_change() -> None:
    hub = make((4,), shards=4)
    hub.topic("orders").scale(12)
    change = opening_of(stored(hub.backend))
    assert change is not None
    assert {topic for topic, storage, _ in change.seal if storage == 0} == {
        "tailrace.retry-queue.crm",
        "tailrace.dead-letter-queue.crm",
    }


@given(
    st.sampled_from(list(RouterKind)),
    st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24]), min_size=1, max_size=4),
    st.data(),
)
def test_what_is_accepted_agrees_about_every_key(
    kind: RouterKind, counts: list[int], data: st.DataObject
) -> None:
    shapes = [Shape(counts[0])]
    for count in counts[1:]:
        shapes.append(next_shape(shapes[-1], count))
    shards = data.draw(st.integers(1, counts[-1]))
    named = [NamedShape(str(number), shape) for number, shape in enumerate(shapes)]
    found = find_disagreement(STRATEGY, kind, named, shards)
    owners = [
        {key_shard(STRATEGY, kind, shape, shards, key) for shape in shapes} for key in KEYS[:2000]
    ]
    if found is None:
        assert all(len(shard) == 1 for shard in owners)
    elif found.example is not None:
        one, other = found.one.shape, found.other.shape
        hashed = hash_key(found.example.encode())
        partitions = [route(kind, hashed, each.partitions, each.k) for each in (one, other)]
        assert STRATEGY.owner(partitions[0], shards, one.partitions) != STRATEGY.owner(
            partitions[1], shards, other.partitions
        )


def test_a_queue_continues_in_a_copy_of_the_newest_shape() -> None:
    hub = make((4, 12), shards=4)
    main = stored(hub.backend).main.definition
    queue = first_queue(main, queue_shape(main.shape, 4, None, "r"), created_ms=5, identity="x")
    assert (queue.router, queue.content_type) == (main.router, main.content_type)
    switched = switched_queue(queue, Shape(24, 6))
    assert (switched.storage, switched.pointer) == ((Shape(12, 3), Shape(24, 6)), 1)
