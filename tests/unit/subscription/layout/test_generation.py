"""The next generation: its number of shards, what it reads, and what must be finished before."""

from __future__ import annotations

import pytest

from tailrace.subscription.layout.assignment import Contiguous
from tailrace.subscription.layout.generation import (
    MainTopic,
    NextGeneration,
    asked_generation,
    scaled_generation,
)
from tailrace.subscription.layout.mirror import next_queue_shape
from tailrace.topic.lineage import Shape, next_shape
from tailrace.topic.router import RouterKind

CONSISTENT, RANGE = RouterKind.SHARD_CONSISTENT, RouterKind.RANGE


def main_topic(*partitions: int, opened: int, kind: RouterKind = CONSISTENT) -> MainTopic:
    shapes = [Shape(partitions[0])]
    for count in partitions[1:]:
        shapes.append(next_shape(shapes[-1], count))
    return MainTopic(Contiguous(), kind, shapes, opened)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_where_every_key_keeps_its_shard_nothing_must_be_finished(shards: int) -> None:
    found = asked_generation(main_topic(4, 12, opened=2), shards, uneven=False)
    assert found == NextGeneration(shards, 2, oldest=0)


@pytest.mark.parametrize("shards", [3, 6, 12])
def test_where_keys_change_their_shard_the_storage_topics_before_must_be_finished(
    shards: int,
) -> None:
    found = asked_generation(main_topic(4, 12, opened=2), shards, uneven=False)
    assert found == NextGeneration(shards, 2, oldest=1)


def test_more_shards_than_the_open_partitions_begin_with_the_next_storage_topic() -> None:
    found = asked_generation(main_topic(7, 10, opened=1), 10, uneven=False)
    assert found == NextGeneration(10, 2, oldest=1)


def test_a_number_that_does_not_divide_what_is_open_waits_unless_it_may() -> None:
    main = main_topic(4, 6, opened=1)
    assert asked_generation(main, 3, uneven=False) == NextGeneration(3, 2, oldest=1)
    assert asked_generation(main, 3, uneven=True) == NextGeneration(3, 1, oldest=0)


def test_a_change_opens_what_every_key_agrees_about() -> None:
    found = asked_generation(main_topic(4, 8, 16, opened=1), 2, uneven=False)
    assert found == NextGeneration(2, 3, oldest=0)


def test_a_scaling_in_which_keys_change_their_shard_needs_another_generation() -> None:
    assert scaled_generation(main_topic(8, 12, opened=1), 4) == NextGeneration(4, 2, oldest=1)
    assert scaled_generation(main_topic(8, 12, opened=2), 4) is None
    assert scaled_generation(main_topic(8, 16, opened=1), 4) is None
    assert scaled_generation(main_topic(8, 12, opened=1, kind=RANGE), 4) is None


def test_it_has_no_more_shards_than_partitions() -> None:
    assert scaled_generation(main_topic(12, 5, opened=1), 12) == NextGeneration(5, 2, oldest=1)


def test_it_opens_all_storage_topics_that_agree_with_the_next() -> None:
    found = scaled_generation(main_topic(8, 12, 24, 5, opened=1), 4)
    assert found == NextGeneration(4, 3, oldest=1)


def test_a_queue_with_a_given_number_of_partitions_has_a_multiple_of_the_shards() -> None:
    strategy, newest = Contiguous(), Shape(12)

    def partitions(shards: int, given: int | None, kind: RouterKind = RANGE) -> int:
        return next_queue_shape(strategy, kind, newest, shards, given).partitions

    assert [partitions(shards, 4) for shards in (1, 2, 3, 4, 6, 12)] == [4, 4, 6, 4, 6, 12]
    assert partitions(3, None) == 12
    assert partitions(3, 4, CONSISTENT) == 12  # keys would disagree with 6
    assert partitions(3, 24, CONSISTENT) == 24
