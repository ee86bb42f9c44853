"""The steps of a seek: interrupted, taken by two processes at once, and overtaken."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from tailrace.backend.contract import Backend, Change, Fence, Transaction, raise_fence
from tailrace.errors import Conflict
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.definition import read_group
from tailrace.group.store.lifecycle import open_group
from tailrace.group.store.seek import seek
from tailrace.group.store.seek_steps import (
    SeekOrder,
    SeekState,
    find_seek,
    finish_pending,
    finishing,
    pending_change,
    seek_fence,
)
from tailrace.group.store.start import FROM_ZERO, StartMarks
from tailrace.group.store.streams import BasisReader
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.testing import ManualClock, MemoryBackend
from tailrace.topic.view import find
from tests.support.faulty_backend import FaultyBackend
from tests.support.groups import GROUP, ack, ack_all, all_marks, lead, marks, owner, states
from tests.support.topics import push

PUSHED = 40
STEPS = 6
"""How often `finishing` is entered until it is through."""


def leave_pending(backend: Backend, marks: StartMarks, topic: str = "orders") -> None:
    """Take the first step of a seek whose process then dies."""
    stored = find(backend, topic)
    assert stored is not None
    order = SeekOrder(stored, find_seek(backend, GROUP, topic), "somewhere", marks)
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
    leave_pending(backend, StartMarks(False, {(1, 3): 1}))
    seek(backend, GROUP, "orders/1.0@2")
    assert marks(backend, "orders/1.0", "orders/1.3") == [2, 1]


def interleavings() -> Iterator[tuple[int, ...]]:
    """Return every order in which two processes can take their steps."""
    for first in combinations(range(2 * STEPS), STEPS):
        yield tuple(0 if place in first else 1 for place in range(2 * STEPS))


def test_two_processes_that_finish_a_seek_write_the_marks_once_in_any_order(
    clock: ManualClock,
) -> None:
    backend = MemoryBackend()
    push(Hub.from_backend(backend).create_topic("orders", partitions=1), PUSHED, keys=PUSHED)
    open_group(backend, GROUP, "orders", "earliest", clock)
    for order in interleavings():
        ack_all(backend, "orders/0.0")
        leave_pending(backend, StartMarks(True, {(0, 0): 7}))
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


def test_a_seek_is_finished_when_it_returns_although_another_process_was_finishing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = FaultyBackend()
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    push(topic, PUSHED, keys=PUSHED)
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
    assert sum(marks(backend, "orders/0.0", "orders/0.1")) == PUSHED


def test_a_late_finisher_of_a_seek_overwrites_nothing_newer(
    clock: ManualClock,
) -> None:
    backend = MemoryBackend()
    push(Hub.from_backend(backend).create_topic("orders", partitions=1), PUSHED, keys=PUSHED)
    open_group(backend, GROUP, "orders", "earliest", clock)
    for pause in range(STEPS):
        leave_pending(backend, StartMarks(True, {(0, 0): 7}))
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


def test_two_concurrent_first_steps_make_one_seek(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    stored = find(backend, "orders")
    assert stored is not None
    order = SeekOrder(stored, find_seek(backend, GROUP, "orders"), "", FROM_ZERO)
    version = read_group(backend, GROUP).version
    changes = [pending_change(backend, GROUP, version, {"orders": order}) for _ in range(2)]
    backend.store.commit(changes[0])
    with pytest.raises(Conflict):
        backend.store.commit(changes[1])


def test_a_finished_seek_keeps_no_marks(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    open_group(backend, GROUP, "orders", "latest", clock)
    seek(backend, GROUP, "latest")
    stored = find_seek(backend, GROUP, "orders")
    assert stored is not None
    assert (stored.seek.state, stored.seek.number, stored.seek.marks) == (SeekState.DONE, 2, {})
    assert stored.seek.target == "latest"
    assert backend.store.commit(Change()) > stored.version
