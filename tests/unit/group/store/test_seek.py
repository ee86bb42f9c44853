"""Starts and seeks: the resulting positions, and the fenced owners."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace.backend.contract import Backend, Fence, Transaction
from tailrace.errors import Conflict, Fenced, InvalidValue, OutOfRange
from tailrace.group.protocol.events import GrantsRefused
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.definition import consumer_name, read_group
from tailrace.group.store.lifecycle import open_group
from tailrace.group.store.seek import plan_seek, seek
from tailrace.group.store.seek_steps import (
    SeekOrder,
    find_seek,
    pending_change,
)
from tailrace.group.store.start import FROM_ZERO
from tailrace.group.store.streams import read_basis
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition, Position
from tailrace.testing import ManualClock
from tailrace.topic.ledger import Progress
from tailrace.topic.view import find
from tests.support.groups import GROUP, ack, all_marks, grant, lead, marks, owner, units_in
from tests.support.topics import end_offsets, push

PUSHED = 40


def test_earliest_starts_everything_at_0_and_latest_at_its_end(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, "all", "orders", "earliest", clock)
    open_group(backend, GROUP, "orders", "latest", clock)
    assert all_marks(backend, orders) == end_offsets(orders)
    assert units_in(backend, UnitState.FINISHED) == {"orders/0.0", "orders/0.1"}
    assert units_in(backend, UnitState.OPEN) == {f"orders/1.{i}" for i in range(4)}
    earliest = read_basis(backend, "all")
    assert [unit.load for unit in earliest.units] == list(end_offsets(orders).values())


def test_a_time_starts_each_stream_at_its_first_record_of_that_time(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    topic = hub.create_topic("orders", partitions=1)
    offsets = []
    for _ in range(10):
        offsets.append(topic.push(1).offset)
        clock.advance(1)
    since = datetime.fromtimestamp((clock.now_ms() - 4000) / 1000, UTC)
    open_group(backend, GROUP, "orders", since, clock)
    assert offsets[5] < marks(backend, "orders/0.0")[0] <= offsets[6]


def test_a_position_starts_there_and_skips_the_storage_topics_before(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", Position("orders", 1, 1, 3), clock)
    wanted = dict.fromkeys(end_offsets(orders), 0)
    wanted |= {unit: end for unit, end in end_offsets(orders).items() if "/0." in unit}
    assert all_marks(backend, orders) == wanted | {"orders/1.1": 3}


def test_offsets_by_partition_start_there(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", {"orders/0.0": 2, "orders/1.1": 3}, clock)
    named = {"orders/0.0": 2, "orders/1.1": 3}
    assert all_marks(backend, orders) == dict.fromkeys(end_offsets(orders), 0) | named


@pytest.mark.parametrize(
    ("position", "error"),
    [
        (Position("orders", 0, 0, 10_000), OutOfRange),
        (Position("orders", 0, 9, 0), InvalidValue),
        (Position("orders", 7, 0, 0), InvalidValue),
    ],
)
def test_an_unknown_position_starts_nothing(
    backend: Backend,
    orders: Topic[Any],
    clock: ManualClock,
    position: Position,
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        open_group(backend, GROUP, "orders", position, clock)
    open_group(backend, GROUP, "orders", "earliest", clock)
    before = find_seek(backend, GROUP, "orders")
    with pytest.raises(error):
        seek(backend, GROUP, position)
    assert find_seek(backend, GROUP, "orders") == before


def test_a_seek_back_to_a_position_resets_the_partitions_that_follow_it_and_no_others(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    before = all_marks(backend, orders)
    planned = plan_seek(backend, GROUP, "orders/0.0@2")
    assert all_marks(backend, orders) == before
    assert seek(backend, GROUP, "orders/0.0@2") == planned
    moved = {"orders/0.0": 2, "orders/1.0": 0, "orders/1.1": 0}
    assert {str(where): mark for where, mark in planned.items()} == moved
    assert all_marks(backend, orders) == before | moved
    assert units_in(backend, UnitState.WAITING) == {"orders/1.0", "orders/1.1"}
    assert units_in(backend, UnitState.OPEN) == {"orders/0.0", "orders/1.2", "orders/1.3"}


def test_a_seek_removes_acknowledgements_above_the_mark(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "earliest", clock)
    ack(backend, "orders/0.0", 5, 9)
    for target in ("orders/0.0@3", "earliest"):
        ack(backend, "orders/0.0", 5, 9)
        seek(backend, GROUP, target)
        loads = {unit.name: unit.load for unit in read_basis(backend, GROUP).units}
        wanted = end_offsets(orders)["orders/0.0"] - marks(backend, "orders/0.0")[0]
        assert loads["orders/0.0"] == wanted


def test_a_seek_over_a_filter_moves_all_topics_and_a_position_one(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    for name in ("orders.eu", "orders.us"):
        push(hub.create_topic(name, partitions=1), PUSHED, keys=PUSHED)
    open_group(backend, GROUP, "orders.*", "latest", clock)
    seek(backend, GROUP, "orders.eu/0.0@4")
    assert marks(backend, "orders.eu/0.0")[0] == 4
    assert marks(backend, "orders.us/0.0")[0] >= PUSHED
    seek(backend, GROUP, "earliest")
    assert marks(backend, "orders.eu/0.0", "orders.us/0.0") == [0, 0]
    with pytest.raises(InvalidValue, match=r"orders\.eu, orders\.us"):
        seek(backend, GROUP, "returns/0.0@4")


def test_a_seek_fences_all_owners_and_returns_the_processes_to_notify(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    leader = lead(backend)
    fences = [owner(backend, leader, f"orders/1.{number}") for number in range(4)]
    seek(backend, GROUP, "orders/0.0@2")
    for fence in fences:
        with pytest.raises(Fenced):
            backend.commit(Transaction(fence=fence))
    assert [grant.fenced for grant in lead(backend).grants] == [True] * 4


def test_a_grant_planned_before_a_seek_is_refused_after_it(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    leader = lead(backend)
    basis = read_basis(backend, GROUP)
    seek(backend, GROUP, "earliest")
    refused = grant(backend, leader, "orders/1.0", basis)
    assert refused == GrantsRefused(GROUP, 1, deposed=False)


def test_a_grant_planned_before_a_scaling_is_refused_after_it(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    leader = lead(backend)
    basis = read_basis(backend, GROUP)
    orders.scale(8)
    assert grant(backend, leader, "orders/1.0", basis) == GrantsRefused(GROUP, 1, deposed=False)


def test_a_seek_after_a_scaling_that_it_did_not_see_is_refused(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    stored = find(backend, "orders")
    assert stored is not None
    order = SeekOrder(stored, find_seek(backend, GROUP, "orders"), "", FROM_ZERO)
    change = pending_change(backend, GROUP, read_group(backend, GROUP).version, {"orders": order})
    orders.scale(8)
    with pytest.raises(Conflict):
        backend.store.commit(change)


def test_latest_during_pushes_and_scaling_skips_nothing_after_its_offsets(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    topic = hub.create_topic("orders", partitions=1)
    stop = threading.Event()

    def produce() -> None:
        number, partitions = 0, 1
        while not stop.is_set():
            topic.push_many([("c1", number + i) for i in range(5)])
            number += 5
            if number % 50 == 0 and partitions < 12:
                partitions += 1
                topic.scale(partitions, any_count=True)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        for number in range(20):
            open_group(backend, f"g{number}", "orders", "latest", clock)
    finally:
        stop.set()
        producing.join()
    reader = hub.topic("orders").reader()
    places: list[Partition] = []
    values: dict[Partition, list[tuple[int, int]]] = {}
    while reads := reader.poll():
        for where, records in reads:
            found = values.setdefault(where, [])
            if not found:
                places.append(where)
            found += [(m.offset, m.value) for m in hub.topic("orders").messages(where, records)]
    for number in range(20):
        given: list[int] = []
        for where in places:
            mark = Progress.load(backend.table, consumer_name(f"g{number}"), where).mark
            given += [value for offset, value in values[where] if offset >= mark]
        newest = max(value for found in values.values() for _, value in found)
        assert given == list(range(newest + 1 - len(given), newest + 1)), number


def test_a_seek_raises_the_fence_of_a_unit_without_an_owner_too(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    entry = backend.store.get("fence/group/billing/orders/1.0")
    assert entry is not None
    seek(backend, GROUP, "earliest")
    with pytest.raises(Fenced):
        backend.commit(Transaction(fence=Fence("group/billing/orders/1.0", entry.version)))
