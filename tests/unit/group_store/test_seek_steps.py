"""The steps of a seek: left half done, taken by two at once, and overtaken."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from tailrace.backend.contract import Backend, Change, Fence, Transaction, raise_fence
from tailrace.errors import Conflict
from tailrace.group.definition import read_group
from tailrace.group.opening import open_group
from tailrace.group.seeking import (
    Order,
    SeekState,
    find_seek,
    finish_pending,
    finishing,
    pending_change,
    seek_fence,
)
from tailrace.group.sending import seek
from tailrace.group.starting import FROM_ZERO, Placement
from tailrace.group.streams import BasisReader
from tailrace.group.unit import UnitState
from tailrace.hub import Hub
from tailrace.testing import ManualClock, MemoryBackend
from tailrace.topic.topic import Topic
from tailrace.topic.view import find
from tests.unit.group_store.consuming import (
    GROUP,
    ack,
    ack_all,
    lead,
    marks,
    owner,
    states,
)
from tests.unit.group_store.orders import KEYS, all_marks, push
from tests.unit.topic.faults import FaultyBackend

STEPS = 6
"""How often `finishing` is entered until it is through."""


def leave_pending(backend: Backend, placement: Placement, topic: str = "orders") -> None:
    """The first step of a seek whose seeker then dies."""
    stored = find(backend, topic)
    assert stored is not None
    order = Order(stored, find_seek(backend, GROUP, topic), "somewhere", placement)
    version = read_group(backend, GROUP).version
    backend.store.commit(pending_change(backend, GROUP, version, {topic: order}))


def test_while_a_seek_is_pending_everything_waits_and_the_reader_finishes_it(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    leave_pending(backend, FROM_ZERO)
    assert set(states(backend).values()) == {UnitState.WAITING}
    basis = BasisReader(backend, GROUP).read()
    assert {u.name for u in basis.units if u.state is UnitState.OPEN} == {
        "orders/0.0",
        "orders/0.1",
    }
    assert set(all_marks(backend, orders).values()) == {0}
    assert not finish_pending(backend, GROUP, "orders")


def test_a_seek_finishes_the_pending_one_first(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    leave_pending(backend, Placement(False, {(1, 3): 1}))
    seek(backend, GROUP, "orders/1.0@2")
    assert marks(backend, "orders/1.0", "orders/1.3") == [2, 1]


def interleavings() -> Iterator[tuple[int, ...]]:
    """Every order in which two can take their steps."""
    for first in combinations(range(2 * STEPS), STEPS):
        yield tuple(0 if place in first else 1 for place in range(2 * STEPS))


def test_two_that_finish_a_seek_write_the_marks_once_whatever_comes_first(
    clock: ManualClock,
) -> None:
    backend = MemoryBackend()
    push(Hub.from_backend(backend).create_topic("orders", partitions=1))
    open_group(backend, GROUP, "orders", "earliest", clock)
    for order in interleavings():
        ack_all(backend, "orders/0.0")
        leave_pending(backend, Placement(True, {(0, 0): 7}))
        both = [finishing(backend, GROUP, "orders") for _ in range(2)]
        finished = 0
        for each in order:
            try:
                next(both[each])
            except StopIteration as end:
                finished += bool(end.value)
                if end.value:  # The unit is granted again, and consumed.
                    assert marks(backend, "orders/0.0") == [7], order
                    ack(backend, "orders/0.0", 7, 9)
        if finished:
            assert marks(backend, "orders/0.0") == [9], order
        else:  # Each was in the other's way, and a third one comes.
            assert finish_pending(backend, GROUP, "orders"), order
            assert marks(backend, "orders/0.0") == [7], order
        assert finished <= 1, order


def test_a_seek_is_done_when_it_returns_although_somebody_else_was_about_to_finish_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = FaultyBackend()
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    push(topic)
    open_group(backend, GROUP, "orders", "earliest", ManualClock())
    others: list[Fence] = []

    def take_it_over(transaction: Transaction) -> None:
        name = seek_fence(GROUP, "orders")
        if transaction.fence is not None and transaction.fence.name == name and not others:
            others.append(raise_fence(backend.store, name))  # and gets no further

    monkeypatch.setattr(backend, "before", take_it_over)
    seek(backend, GROUP, "latest")
    found = find_seek(backend, GROUP, "orders")
    assert len(others) == 1
    assert found is not None
    assert found.seek.state is SeekState.DONE
    assert sum(marks(backend, "orders/0.0", "orders/0.1")) == KEYS


def test_one_that_comes_late_to_finish_a_seek_writes_nothing_over_what_came_after(
    clock: ManualClock,
) -> None:
    backend = MemoryBackend()
    push(Hub.from_backend(backend).create_topic("orders", partitions=1))
    open_group(backend, GROUP, "orders", "earliest", clock)
    for pause in range(STEPS):
        leave_pending(backend, Placement(True, {(0, 0): 7}))
        late = finishing(backend, GROUP, "orders")
        for _ in range(pause):
            next(late)
        finish_pending(backend, GROUP, "orders")
        fence = owner(backend, lead(backend), "orders/0.0")
        ack(backend, "orders/0.0", 7, 12, fence)
        seen = find_seek(backend, GROUP, "orders")
        list(late)
        assert marks(backend, "orders/0.0") == [12], pause
        assert find_seek(backend, GROUP, "orders") == seen
        ack(backend, "orders/0.0", 12, 14, fence)
        seek(backend, GROUP, "earliest")


def test_two_first_steps_at_once_are_one(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    stored = find(backend, "orders")
    assert stored is not None
    order = Order(stored, find_seek(backend, GROUP, "orders"), "", FROM_ZERO)
    version = read_group(backend, GROUP).version
    changes = [pending_change(backend, GROUP, version, {"orders": order}) for _ in range(2)]
    backend.store.commit(changes[0])
    with pytest.raises(Conflict):
        backend.store.commit(changes[1])


def test_a_done_seek_keeps_no_marks(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    seek(backend, GROUP, "latest")
    stored = find_seek(backend, GROUP, "orders")
    assert stored is not None
    assert (stored.seek.state, stored.seek.number, stored.seek.marks) == (SeekState.DONE, 2, {})
    assert stored.seek.target == "latest"
    assert backend.store.commit(Change()) > stored.version
