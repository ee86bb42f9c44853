"""The units of a subscription's workers are its shards."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tailrace.backend.contract import Change, Entry
from tailrace.errors import InvalidValue, UnknownGroup, UnknownTopic
from tailrace.group.protocol.unit import Basis, UnitState
from tailrace.group.store.definition import group_names
from tailrace.group.store.unit_source import Concern
from tailrace.subscription.store.names import ShardName, subscription_of, worker_group
from tailrace.subscription.store.reading import offsets_by_key
from tailrace.subscription.store.shard_units import ShardUnits
from tests.support.interleaved_store import InterleavedBackend
from tests.support.shards import NAME, Shop, stored

GROUP = worker_group(NAME)


def test_each_shard_is_an_open_unit() -> None:
    shop = Shop(partitions=4, shards=2)
    basis = ShardUnits(shop.backend).units(GROUP)
    assert [(unit.name, unit.state) for unit in basis.units] == [
        ("0.0", UnitState.OPEN),
        ("0.1", UnitState.OPEN),
    ]
    assert dict(basis.versions) == {
        f"subscription/{NAME}": stored(shop.backend).version,
        f"subscription-reset/{NAME}": 0,
    }


def test_to_read_the_units_opens_the_storage_topics_that_can_be() -> None:
    shop = Shop(partitions=4, shards=2)
    shop.topic.scale(12)
    before = stored(shop.backend).version
    basis = ShardUnits(shop.backend).units(GROUP)
    subscription = stored(shop.backend)
    assert subscription.definition.opened == 2
    assert before < subscription.version == dict(basis.versions)[f"subscription/{NAME}"]
    assert [shape.partitions for shape in subscription.rq.definition.storage] == [4, 12]


def test_the_workers_are_not_listed_among_groups() -> None:
    shop = Shop()
    ShardUnits(shop.backend).units(GROUP)
    assert group_names(shop.backend) == []
    assert subscription_of("billing") is None


def test_changes_of_topics_and_definitions_concern_the_workers() -> None:
    units = ShardUnits(Shop().backend)
    assert units.concerns(Entry("topic/orders", b"x", 5)) == Concern(None, units_changed=True)
    assert units.concerns(Entry("topic/orders", None, 5)) == Concern(
        None, units_changed=True, may_have_ended=True
    )
    assert units.concerns(Entry(f"subscription/{NAME}", b"x", 5)) == Concern(
        GROUP, units_changed=True, sessions_concerned=True
    )
    assert units.concerns(Entry(f"subscription/{NAME}", None, 5)) == Concern(
        GROUP, may_have_ended=True
    )
    concerns_sessions = Concern(GROUP, sessions_concerned=True)
    assert units.concerns(Entry(f"subscription-paused/{NAME}", b"x", 5)) == concerns_sessions
    assert units.concerns(Entry(f"subscription-paused/{NAME}", None, 5)) == concerns_sessions
    assert units.concerns(Entry(f"subscription-request/{NAME}/7", b"x", 5)) == concerns_sessions
    assert units.concerns(Entry("group/billing", b"x", 5)) is None


def test_a_subscription_whose_topic_was_deleted_has_no_units() -> None:
    shop = Shop()
    units = ShardUnits(shop.backend)
    version = stored(shop.backend).version
    shop.topic.view.delete()
    assert units.units(GROUP) == Basis((), ((f"subscription/{NAME}", version),))
    assert units.defined_by(GROUP) == (f"subscription/{NAME}", version)


def test_a_topic_that_is_deleted_while_a_storage_topic_is_opened_leaves_no_units() -> None:
    shop = Shop(partitions=4, shards=2)
    shop.topic.scale(12)
    racing: Any = InterleavedBackend(
        shop.backend, "topic/tailrace.dead-letter-queue.crm", shop.topic.view.delete
    )
    assert ShardUnits(racing).units(GROUP).units == ()


def test_a_subscription_or_topic_that_was_deleted_ends_the_work() -> None:
    shop = Shop()
    units = ShardUnits(shop.backend)
    units.check(GROUP)
    shop.topic.view.delete()
    with pytest.raises(UnknownTopic):
        units.check(GROUP)
    shop.backend.store.commit(Change(writes={f"subscription/{NAME}": None}))
    for group in (GROUP, "billing"):
        with pytest.raises(UnknownGroup):
            units.check(group)


def test_the_name_of_a_shard_has_its_generation() -> None:
    assert ShardName.parse("2.13") == ShardName(2, 13)
    assert str(ShardName(2, 13)) == "2.13"
    with pytest.raises(InvalidValue, match="GENERATION"):
        ShardName.parse("orders/0.1")


def test_the_offsets_of_a_column_are_divided_by_key_in_order() -> None:
    keys = pa.array([b"a", b"b", None, b"a", None, b"b", b"a"], pa.binary())
    offsets = pa.array([3, 4, 7, 9, 10, 12, 20], pa.int64())
    found = {key: list(numbers) for key, numbers in offsets_by_key(keys, offsets)}
    assert found == {
        b"a": [3, 9, 20],
        b"b": [4, 12],
        None: [7, 10],
    }
    assert list(offsets_by_key(keys[:0], offsets[:0])) == []
