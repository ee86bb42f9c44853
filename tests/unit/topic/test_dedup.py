"""One message per `dedup_id`, over a window."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import (
    InvalidValue,
)
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.testing import ManualClock
from tests.support.faulty_backend import FaultyBackend, once, unknown
from tests.support.topics import Order, all_values, nothing_stored


def test_a_dedup_id_stores_once_and_returns_the_first_receipt(
    hub: Hub, orders: Topic[Order]
) -> None:
    first = orders.push(Order(1), key="a", dedup_id="x")
    orders.push(Order(2), key="a")
    again = hub.topic("orders", Order).push(Order(3), key="b", timestamp=5, dedup_id="x")
    assert again == first
    assert orders.push(Order(4), key="a", dedup_id="y") != first
    assert sorted(order.id for order in all_values(orders)) == [1, 2, 4]


def test_a_dedup_id_holds_over_a_switch(orders: Topic[Order]) -> None:
    first = orders.push(Order(1), key="a", dedup_id="x")
    orders.scale(12)
    assert orders.push(Order(1), key="a", dedup_id="x") == first


def test_a_dedup_id_is_forgotten_after_the_window(
    orders: Topic[Order], clock: ManualClock, backend: FaultyBackend
) -> None:
    first = orders.push(Order(1), key="a", dedup_id="x")
    clock.advance(300)
    assert orders.push(Order(2), key="a", dedup_id="x") == first
    clock.advance(0.001)
    second = orders.push(Order(3), key="a", dedup_id="x")
    assert second != first
    assert orders.push(Order(4), key="a", dedup_id="x") == second
    assert [order.id for order in all_values(orders)] == [1, 3]


def test_old_dedup_ids_are_removed_by_later_pushes(
    orders: Topic[Order], clock: ManualClock, backend: FaultyBackend
) -> None:
    for i in range(10):
        orders.push(Order(i), dedup_id=f"id{i}")
    identity = orders.view.definition.identity
    clock.advance(301)
    for i in range(64):
        orders.push(Order(i), dedup_id=f"new{i}")
    for table in (f"dedup/orders/{identity}", f"dedup-times/orders/{identity}"):
        assert len(backend.table.scan(table)) == 64


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_dedup_id_resolves_an_unknown_outcome(
    backend: FaultyBackend, orders: Topic[Order], point: str
) -> None:
    setattr(backend, point, once(unknown))
    receipt = orders.push(Order(1), key="a", dedup_id="x")
    assert orders.read(*receipt[1:4]).value == Order(1)
    assert len(all_values(orders)) == 1


@pytest.mark.parametrize("dedup_id", ["", "x" * 1025, 7])
def test_a_dedup_id_out_of_range_is_refused(orders: Topic[Order], dedup_id: Any) -> None:
    with pytest.raises(InvalidValue, match="dedup_id"):
        orders.push(Order(1), dedup_id=dedup_id)
    assert nothing_stored(orders)
