"""Definitions of topics as values: queries and changes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.backend.contract import StorageTopic
from tailrace.errors import InvalidName, InvalidValue
from tailrace.message import Partition
from tailrace.topic.composite import (
    Definition,
    change_between,
    check_name,
    creation,
    decode_definition,
    deletion,
    first_definition,
)
from tailrace.topic.lineage import Shape
from tailrace.topic.router import RouterKind


def defined(partitions: int = 4, *, any_count: bool = False) -> Definition:
    return first_definition(
        partitions=partitions,
        router=RouterKind.SHARD_CONSISTENT,
        content_type="application/json",
        any_count=any_count,
        created_ms=1,
        identity="one",
    )


def test_a_new_topic_has_one_storage_topic_and_the_pointer_at_it() -> None:
    assert (defined(4).storage, defined(4).pointer) == ((Shape(4, 1),), 0)


def test_counts_2_10_4_3_6_give_the_factors_and_bases_of_the_design() -> None:
    definition = defined(2)
    for partitions in (10, 4, 3, 6):
        definition = definition.added(partitions, any_count=True)
    assert [shape.k for shape in definition.storage] == [1, 5, 2, 1, 2]
    assert [shape.base for shape in definition.storage] == [2, 2, 2, 3, 3]


def test_adding_leaves_the_pointer_and_switching_moves_it_by_one() -> None:
    added = defined(4).added(8).added(12)
    assert added.pointer == 0
    assert added.switched().pointer == 1


def test_switching_at_the_last_storage_topic_changes_nothing() -> None:
    definition = defined(4)
    assert definition.switched() == definition


def test_scaling_adds_a_storage_topic_and_skips_those_never_switched_to() -> None:
    scaled = defined(4).added(8).scaled(12)
    assert (scaled.pointer, scaled.shape.partitions) == (2, 12)


@pytest.mark.parametrize("partitions", [0, -1, 5, 10**9])
def test_a_partition_count_out_of_range_is_refused_everywhere(partitions: int) -> None:
    with pytest.raises(InvalidValue, match="partitions"):
        defined(partitions)
    with pytest.raises(InvalidValue, match="partitions"):
        defined(4).added(partitions)
    with pytest.raises(InvalidValue, match="partitions"):
        defined(4).scaled(partitions)


def test_any_count_allows_five_partitions_everywhere() -> None:
    assert defined(5, any_count=True).added(7, any_count=True).last == 1


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]), max_size=6))
def test_a_definition_survives_the_store(counts: list[int]) -> None:
    definition = defined(4)
    for count in counts:
        definition = definition.scaled(count)
    assert decode_definition(msgspec.json.encode(definition)) == definition


def test_creating_expects_that_the_name_is_free() -> None:
    change = creation("orders", defined(4))
    assert change.expect == {"topic/orders": 0}
    assert change.create == (StorageTopic("orders", 0, 4),)


def test_a_switch_seals_the_former_storage_topic_in_the_same_change() -> None:
    before = defined(4).added(8)
    change = change_between("orders", before, before.switched(), 7)
    assert change.expect == {"topic/orders": 7}
    assert change.seal == (StorageTopic("orders", 0, 4),)
    assert change.create == ()


def test_a_scaling_creates_the_new_storage_topic_and_seals_all_it_skips() -> None:
    before = defined(4).added(8)
    change = change_between("orders", before, before.scaled(12), 7)
    assert change.create == (StorageTopic("orders", 2, 12),)
    assert change.seal == (StorageTopic("orders", 0, 4), StorageTopic("orders", 1, 8))


def test_a_deletion_removes_every_storage_topic() -> None:
    change = deletion("orders", defined(4).scaled(8), 7)
    assert change.writes == {"topic/orders": None}
    assert [topic.partitions for topic in change.delete] == [4, 8]


def test_a_partition_follows_the_partitions_whose_keys_it_takes_over() -> None:
    definition = defined(4).scaled(12)
    assert definition.follows(Partition("orders", 1, 7)) == {Partition("orders", 0, 2)}
    assert definition.follows(Partition("orders", 0, 2)) == set()


@pytest.mark.parametrize(("storage", "number"), [(2, 0), (-1, 0), (1, 12), (0, 4), (0, -1)])
def test_an_unknown_partition_is_refused_by_the_definition(storage: int, number: int) -> None:
    with pytest.raises(InvalidValue, match="0 to"):
        defined(4).scaled(12).follows(Partition("orders", storage, number))


def test_differences_name_every_difference() -> None:
    found = defined(4).differences(8, RouterKind.RANGE, "text/plain")
    assert found == [
        "it has 4 partitions, not 8",
        "its router is shard-consistent, not range",
        "its content type is application/json, not text/plain",
    ]


@pytest.mark.parametrize("partitions", [4, 12])
def test_a_scaled_topic_is_the_same_by_its_first_and_by_its_present_count(partitions: int) -> None:
    scaled = defined(4).scaled(8).scaled(12)
    assert scaled.differences(partitions, scaled.router, scaled.content_type) == []


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".hidden", "a\0b", "a b", "a\n", "é", "x" * 201, "x" * 300, None, 7]
)
def test_a_name_that_could_not_be_a_directory_is_refused(name: object) -> None:
    with pytest.raises(InvalidName, match="valid: 1 to 200"):
        check_name("topic", name)


@pytest.mark.parametrize("name", ["a", "orders", "a.b-c_D9", "-", "x" * 200, "a..b"])
def test_a_name_of_letters_digits_dots_and_dashes_is_accepted(name: str) -> None:
    assert check_name("topic", name) == name
