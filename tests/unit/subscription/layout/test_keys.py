"""The shard of a message: of its key, or of the partition where it was pushed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailrace.subscription.layout.assignment import Contiguous
from tailrace.subscription.layout.keys import KeyShards
from tailrace.topic.lineage import Shape, least_hash, next_shape
from tailrace.topic.router import RouterKind, hash_key, route

KINDS = st.sampled_from(RouterKind)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    first = Shape(draw(st.integers(1, 12)))
    return next_shape(first, draw(st.integers(1, 24)))


@given(KINDS, shapes())
def test_the_least_hash_of_a_partition_is_routed_to_it(kind: RouterKind, shape: Shape) -> None:
    for partition in range(shape.partitions):
        hashed = least_hash(kind, shape, partition)
        assert route(kind, hashed, shape.partitions, shape.k) == partition
        if 0 < hashed <= 500:
            lower = (route(kind, h, shape.partitions, shape.k) for h in range(hashed))
            assert partition not in lower


@given(KINDS, shapes(), shapes(), st.integers(1, 12), st.binary(min_size=1, max_size=8))
def test_messages_without_a_key_agree_wherever_keys_do(
    kind: RouterKind, one: Shape, other: Shape, shards: int, key: bytes
) -> None:
    keys = KeyShards(Contiguous(), kind, (one, other), shards)
    assert keys.of_hashes(np.array([hash_key(key)]))[0] == keys.of_key(key)
    if keys.agrees(one):
        for partition in range(one.partitions):
            own = keys.strategy.owner(partition, shards, one.partitions)
            assert keys.of_pushed(0, partition) == own
