"""The steps of an offset reset: interrupted, taken by two processes at once, and overtaken."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.errors import Fenced, UnknownSubscription
from tailrace.group.protocol.unit import UnitState
from tailrace.operations.audit import read_audit
from tailrace.subscription.store.generations import steps as generation_steps
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.lifecycle import delete_subscription
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.reset import apply, steps
from tailrace.subscription.store.reset.entry import find_reset
from tailrace.subscription.store.reset.steps import Operator, finish_reset, finishing, reset
from tailrace.subscription.store.shard_units import ShardUnits
from tests.support.shards import NAME, REJECTED, Shop, stored
from tests.support.topics import push

OPERATOR = Operator("me@here", 1, "subscription reset")
STEPS = 7
"""How often `finishing` is entered until it is through."""


class Died(Exception):
    """A process died."""


@pytest.fixture
def shop() -> Shop:
    """A shop of which all messages are handled."""
    shop = Shop(partitions=2, shards=2)
    push(shop.topic, 20)
    handle_all(shop)
    return shop


def handle_all(shop: Shop) -> None:
    for shard in range(2):
        shop.owner(shard).run()
    assert not any(left(shop.backend))


def left(backend: Backend) -> list[int]:
    """Return the number of offsets of each partition that are not acknowledged."""
    partitions = [each for shard in range(2) for each in stored(backend).streams(shard).mq]
    ledgers = read_ledgers(backend, stored(backend), partitions)
    return [backend.log.bounds(each).end - ledgers[each].mark for each in partitions]


def leave_pending(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, to: str = "start", queue: str = "mq"
) -> None:
    """Take the first step of a reset whose process then dies."""
    with monkeypatch.context() as patch:
        patch.setattr(steps, "finish_reset", lambda *_: False)
        reset(backend, NAME, to, queue=queue, operator=OPERATOR, now_ms=0)
    found = find_reset(backend.store, NAME)
    assert found is not None
    assert found.pending


def states(backend: Backend) -> set[UnitState]:
    return {unit.state for unit in ShardUnits(backend).units(worker_group(NAME)).units}


def test_a_pending_reset_fences_the_owners_and_whoever_reads_the_units_finishes_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.push("k0", 100)
    owners = [shop.owner(shard) for shard in range(2)]
    [busy] = [owner for owner in owners if owner.start_calls()]
    busy.finish(100)
    leave_pending(shop.backend, monkeypatch)
    with pytest.raises(Fenced):
        busy.commit()
    assert states(shop.backend) == {UnitState.OPEN}
    found = find_reset(shop.backend.store, NAME)
    assert found is not None
    assert not found.pending
    assert sum(left(shop.backend)) == 21


def test_while_a_reset_is_pending_no_shard_is_granted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_pending(shop.backend, monkeypatch)
    monkeypatch.setattr(generation_steps, "finish_reset", lambda *_: False)
    assert states(shop.backend) == {UnitState.WAITING}


def test_a_reset_finishes_the_pending_one_first(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_pending(shop.backend, monkeypatch)
    reset(shop.backend, NAME, "end", operator=OPERATOR, now_ms=0)
    assert stored(shop.backend).definition.reset == 2
    assert sum(left(shop.backend)) == 0
    assert len(read_audit(shop.hub, None, 10)) == 2


def interleavings() -> Iterator[tuple[int, ...]]:
    """Return every order in which two processes can take their steps."""
    for first in combinations(range(2 * STEPS), STEPS):
        yield tuple(0 if place in first else 1 for place in range(2 * STEPS))


def test_two_processes_that_finish_a_reset_write_it_once_in_any_order(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, order in enumerate(interleavings(), 1):
        leave_pending(shop.backend, monkeypatch)
        both = [finishing(shop.backend, NAME) for _ in range(2)]
        finished = 0
        for each in order:
            try:
                next(both[each])
            except StopIteration as end:
                if end.value:  # The shards are granted again, and consumed.
                    finished += 1
                    assert left(shop.backend) == [10, 10] or sum(left(shop.backend)) == 20, order
                    handle_all(shop)
        if not finished:
            assert finish_reset(shop.backend, NAME), order
            assert sum(left(shop.backend)) == 20, order
            handle_all(shop)
        assert finished <= 1, order
        assert sum(left(shop.backend)) == 0, order
        assert shop.stats().conserved, order
        if number % 100 == 0:
            assert len(read_audit(shop.hub, None, 10_000)) == number


def test_processes_that_read_what_to_reset_do_not_stop_each_other(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_pending(shop.backend, monkeypatch)
    reading = 0

    def read(*given: Any) -> Any:
        """Read, and let another process, which then dies, begin to finish meanwhile."""
        nonlocal reading
        reading += 1
        if reading > 1:
            raise Died
        with pytest.raises(Died):
            finish_reset(shop.backend, NAME)
        return read_ledgers(*given)

    monkeypatch.setattr(apply, "read_ledgers", read)
    assert finish_reset(shop.backend, NAME)
    assert reading == 2
    assert sum(left(shop.backend)) == 20


def test_a_late_finisher_writes_nothing_into_a_subscription_that_was_deleted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in range(STEPS):
        leave_pending(shop.backend, monkeypatch)
        late = finishing(shop.backend, NAME)
        for _ in range(pause):
            next(late)
        delete_subscription(shop.backend, NAME)
        list(late)
        assert find_reset(shop.backend.store, NAME) is None
        with pytest.raises(UnknownSubscription):
            reset(shop.backend, NAME, "start", operator=OPERATOR, now_ms=0)
        shop.hub.create_subscription(NAME, topic="orders", shards=2)
        assert sum(left(shop.backend)) == 20, pause
        handle_all(shop)


def test_a_late_finisher_stops_if_the_queue_that_it_reads_was_deleted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in range(STEPS):
        shop.push("k0", 100)
        for shard in range(2):
            shop.owner(shard).run(lambda _: REJECTED)
        leave_pending(shop.backend, monkeypatch, "end", "dlq")
        late = finishing(shop.backend, NAME)
        for _ in range(pause):
            next(late)
        delete_subscription(shop.backend, NAME)
        list(late)
        assert find_reset(shop.backend.store, NAME) is None
        shop.hub.create_subscription(NAME, topic="orders", shards=2)
        handle_all(shop)
