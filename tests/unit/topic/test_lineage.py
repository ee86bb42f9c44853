"""Shapes, predecessors, finished streams and sharding, checked by brute force."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from math import lcm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import InvalidValue
from tailrace.topic.lineage import (
    PARTITIONS_MAX,
    Shape,
    Stream,
    StreamState,
    check_count,
    consistent,
    followers,
    follows,
    moved_fraction,
    next_shape,
    walk,
)
from tailrace.topic.router import HASHES, Hashes, RouterKind, route

SHARD_CONSISTENT, RANGE = RouterKind
COUNT_MAX = 24
OPEN, READING, DONE = StreamState(False, True), StreamState(True, False), StreamState(True, True)

REACHABLE = sorted(
    {
        (Shape(base * k, k), next_shape(Shape(base * k, k), partitions))
        for base in range(1, COUNT_MAX + 1)
        for k in range(1, COUNT_MAX // base + 1)
        for partitions in range(1, COUNT_MAX + 1)
    },
    key=str,
)


def all_hashes(one: Shape, other: Shape) -> Hashes:
    """As many hashes as it takes for the routes of both shapes to repeat."""
    return np.arange(lcm(one.partitions * one.k, other.partitions * other.k))


def edges_of_ranges(*shapes: Shape) -> Hashes:
    """The hashes at which a partition of the range router begins, and those before them."""
    firsts = {-(-p * HASHES // s.partitions) for s in shapes for p in range(s.partitions)}
    return np.array(sorted(firsts | {h - 1 for h in firsts if h} | {HASHES - 1}))


def parents(
    kind: RouterKind, previous: Shape, current: Shape, hashes: Hashes
) -> dict[int, set[int]]:
    """For each partition, those in which an older record of one of its keys may lie."""
    before = route(kind, hashes, previous.partitions, previous.k)
    after = route(kind, hashes, current.partitions, current.k)
    found = defaultdict(set)
    for pair in np.unique(after * previous.partitions + before).tolist():
        found[pair // previous.partitions].add(pair % previous.partitions)
    return found


def shards_of(kind: RouterKind, shape: Shape, shards: int, hashes: Hashes) -> list[int]:
    partitions = shape.partitions
    owner = {
        p: s
        for s in range(shards)
        for p in range(s * partitions // shards, (s + 1) * partitions // shards)
    }
    return [owner[p] for p in route(kind, hashes, partitions, shape.k).tolist()]


def test_the_published_shapes_hold() -> None:
    shapes = [Shape(2)]
    for partitions in (10, 4, 3, 6):
        shapes.append(next_shape(shapes[-1], partitions))
    assert [shape.k for shape in shapes] == [1, 5, 2, 1, 2]
    assert [shape.base for shape in shapes] == [2, 2, 2, 3, 3]


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 6, 8, 12, 16, 18, PARTITIONS_MAX])
def test_counts_that_shard_evenly_are_accepted(partitions: int) -> None:
    check_count(partitions, any_count=False)


@pytest.mark.parametrize("partitions", [5, 7, 9, 10, 11])
def test_other_counts_need_the_any_count_option(partitions: int) -> None:
    check_count(partitions, any_count=True)
    with pytest.raises(InvalidValue, match=f"partitions is {partitions} .*any_count=True"):
        check_count(partitions, any_count=False)


@pytest.mark.parametrize("partitions", [0, -1, PARTITIONS_MAX + 1, 10**9, 2.0, "4"])
def test_impossible_counts_are_refused(partitions: int) -> None:
    with pytest.raises(InvalidValue, match="valid: a whole number from 1 to 10,000"):
        check_count(partitions, any_count=True)


def test_no_stream_follows_fewer_than_its_keys_require() -> None:
    for previous, current in REACHABLE:
        required = parents(SHARD_CONSISTENT, previous, current, all_hashes(previous, current))
        for partition in range(current.partitions):
            found = follows(SHARD_CONSISTENT, previous, current, partition)
            assert required[partition] <= found, (previous, current, partition)


def test_between_base_blocks_streams_follow_exactly_what_the_keys_require() -> None:
    for previous, current in REACHABLE:
        required: dict[int, set[int]] = defaultdict(set)
        exact = parents(SHARD_CONSISTENT, previous, current, all_hashes(previous, current))
        for partition, before in exact.items():
            required[partition // current.k] |= {p // previous.k for p in before}
        for partition in range(current.partitions):
            found = follows(SHARD_CONSISTENT, previous, current, partition)
            blocks = {p // previous.k for p in found}
            assert blocks == required[partition // current.k], (previous, current, partition)
            assert found == {p for p in range(previous.partitions) if p // previous.k in blocks}


def test_ranges_follow_exactly_the_ranges_they_overlap() -> None:
    for before, after in product(range(1, COUNT_MAX + 1), repeat=2):
        previous, current = Shape(before), Shape(after)
        required = parents(RANGE, previous, current, edges_of_ranges(previous, current))
        for partition in range(after):
            assert follows(RANGE, previous, current, partition) == required[partition]


@pytest.mark.parametrize(("before", "after", "parents"), [(8, 12, 2), (12, 6, 2), (4, 4, 1)])
def test_the_published_numbers_of_predecessors_hold(before: int, after: int, parents: int) -> None:
    previous = Shape(before)
    current = next_shape(previous, after)
    assert {len(follows(SHARD_CONSISTENT, previous, current, p)) for p in range(after)} == {parents}


def test_with_an_unchanged_base_a_stream_follows_its_own_block() -> None:
    assert follows(SHARD_CONSISTENT, Shape(4), Shape(12, 3), 7) == {2}
    assert follows(SHARD_CONSISTENT, Shape(12, 3), Shape(8, 2), 5) == {6, 7, 8}


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 5, 6, 8, 24, 30])
def test_consistency_is_exact_for_reachable_shapes(shards: int) -> None:
    for one, other in REACHABLE[shards % 7 :: 7]:
        hashes = all_hashes(one, other)
        expected = shards_of(SHARD_CONSISTENT, one, shards, hashes) == shards_of(
            SHARD_CONSISTENT, other, shards, hashes
        )
        assert consistent(SHARD_CONSISTENT, [one, other], shards) == expected, (one, other)


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 6), st.integers(1, 4)),
    st.integers(1, 9),
)
def test_consistency_is_exact_for_any_shapes(
    one: tuple[int, int], other: tuple[int, int], shards: int
) -> None:
    first, second = Shape(one[0] * one[1], one[1]), Shape(other[0] * other[1], other[1])
    hashes = all_hashes(first, second)
    expected = shards_of(SHARD_CONSISTENT, first, shards, hashes) == shards_of(
        SHARD_CONSISTENT, second, shards, hashes
    )
    assert consistent(SHARD_CONSISTENT, [first, second], shards) == expected


def test_blocks_over_several_shards_may_still_agree() -> None:
    assert consistent(SHARD_CONSISTENT, [Shape(2, 2), Shape(4, 1)], 2)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50))
def test_consistency_of_ranges_is_exact(one: int, other: int, shards: int) -> None:
    hashes = edges_of_ranges(Shape(one), Shape(other))
    expected = shards_of(RANGE, Shape(one), shards, hashes) == shards_of(
        RANGE, Shape(other), shards, hashes
    )
    assert consistent(RANGE, [Shape(one), Shape(other)], shards) == expected


def test_consistency_holds_over_all_storage_topics_or_not_at_all() -> None:
    grown = [Shape(4), Shape(8, 2), Shape(12, 3)]
    assert consistent(SHARD_CONSISTENT, grown, 4)
    assert not consistent(SHARD_CONSISTENT, [*grown, Shape(6), Shape(12, 2)], 4)
    assert consistent(RANGE, [Shape(8), Shape(12), Shape(4)], 4)
    assert not consistent(RANGE, [Shape(8), Shape(6), Shape(8)], 4)
    assert consistent(SHARD_CONSISTENT, grown[:1], 3)


@pytest.mark.parametrize("shards", [0, -1, PARTITIONS_MAX + 1])
def test_impossible_numbers_of_shards_are_refused(shards: int) -> None:
    with pytest.raises(InvalidValue, match="shards"):
        consistent(RANGE, [Shape(1)], shards)


def test_large_shapes_are_answered_fast() -> None:
    one, other = Shape(9_996, 4_998), Shape(9_998, 4_999)
    assert consistent(SHARD_CONSISTENT, [one, other], 2)
    assert not consistent(SHARD_CONSISTENT, [one, other], 3)


def test_eight_to_twelve_at_four_shards_moves_three_quarters_of_all_keys() -> None:
    assert moved_fraction(SHARD_CONSISTENT, Shape(8), Shape(12), 4) == 0.75
    assert moved_fraction(SHARD_CONSISTENT, Shape(4), Shape(12, 3), 4) == 0
    assert moved_fraction(RANGE, Shape(8), Shape(12), 4) == 0
    assert moved_fraction(RANGE, Shape(2), Shape(3), 3) > 0.3


SHAPES = [Shape(2), Shape(4, 2), Shape(3)]


def states(**given: StreamState) -> dict[tuple[int, int], StreamState]:
    """``_0_1=DONE`` is the state of partition 1 of storage topic 0; all others are open."""
    found = {(i, p): OPEN for i, shape in enumerate(SHAPES) for p in range(shape.partitions)}
    for name, state in given.items():
        storage, partition = map(int, name[1:].split("_"))
        found[storage, partition] = state
    return found


def finished_streams(
    kind: RouterKind, shapes: list[Shape], now: dict[Stream, StreamState]
) -> set[Stream]:
    return {stream for stream, _, finished in walk(kind, shapes, now) if finished}


def startable(kind: RouterKind, shapes: list[Shape], now: dict[Stream, StreamState]) -> set[Stream]:
    """The streams that are there, are not finished, and follow only finished ones."""
    return {
        stream
        for stream, free, finished in walk(kind, shapes, now)
        if free and not finished and stream in now
    }


def test_only_the_first_storage_topic_may_start_initially() -> None:
    assert startable(SHARD_CONSISTENT, SHAPES, states()) == {(0, 0), (0, 1)}
    assert finished_streams(SHARD_CONSISTENT, SHAPES, states()) == set()


def test_a_stream_may_start_once_those_it_follows_are_finished() -> None:
    now = states(_0_0=READING, _0_1=DONE)
    assert finished_streams(SHARD_CONSISTENT, SHAPES, now) == {(0, 1)}
    assert startable(SHARD_CONSISTENT, SHAPES, now) == {(0, 0), (1, 2), (1, 3)}


def test_a_stream_is_not_finished_before_those_it_follows() -> None:
    now = states(_0_0=READING, _0_1=DONE, _1_0=DONE, _1_1=DONE, _1_2=DONE, _1_3=DONE)
    assert finished_streams(SHARD_CONSISTENT, SHAPES, now) == {(0, 1), (1, 2), (1, 3)}
    assert startable(SHARD_CONSISTENT, SHAPES, now) == {(0, 0)}


def test_empty_storage_topics_pass_on_that_all_is_finished() -> None:
    now = states(_0_0=DONE, _0_1=DONE, _1_0=DONE, _1_1=DONE, _1_2=DONE, _1_3=DONE)
    assert startable(SHARD_CONSISTENT, SHAPES, now) == {(2, 0), (2, 1), (2, 2)}


def test_a_deleted_storage_topic_holds_nothing_back() -> None:
    now = {stream: state for stream, state in states().items() if stream[0] > 0}
    assert finished_streams(SHARD_CONSISTENT, SHAPES, now) == {(0, 0), (0, 1)}
    assert startable(SHARD_CONSISTENT, SHAPES, now) == {(1, 0), (1, 1), (1, 2), (1, 3)}


def test_a_deleted_storage_topic_passes_on_unfinished_streams_before_it() -> None:
    now = {stream: state for stream, state in states().items() if stream[0] != 1}
    assert startable(SHARD_CONSISTENT, SHAPES, now) == {(0, 0), (0, 1)}


def test_ranges_start_when_the_ranges_they_overlap_are_finished() -> None:
    now = {(0, 0): DONE, (0, 1): READING, (1, 0): OPEN, (1, 1): OPEN, (1, 2): OPEN}
    assert startable(RANGE, [Shape(2), Shape(3)], now) == {(0, 1), (1, 0)}


def test_followers_are_found_over_all_storage_topics() -> None:
    assert followers(SHARD_CONSISTENT, SHAPES, [(1, 3)]) == {(2, 0), (2, 1), (2, 2)}
    shapes = [Shape(2), Shape(4, 2), Shape(8, 4)]
    assert followers(SHARD_CONSISTENT, shapes, [(0, 1)]) == {
        (1, 2), (1, 3), (2, 4), (2, 5), (2, 6), (2, 7),
    }  # fmt: skip
    assert followers(SHARD_CONSISTENT, shapes, [(2, 1)]) == set()


def test_large_topics_are_derived_fast() -> None:
    shapes = [Shape(9_999), Shape(10_000)]
    done = {(0, partition): DONE for partition in range(9_999)}
    assert len(finished_streams(SHARD_CONSISTENT, shapes, done)) == 19_999
