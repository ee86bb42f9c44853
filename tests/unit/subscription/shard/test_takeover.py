"""A new owner continues where the last one was, however that ended."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.delivery.outcome import SUCCESS
from tailrace.errors import Fenced
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tests.support.shards import FAILED, NAME, RETRY_S, Owner, Shop
from tests.unit.subscription.shard.test_failures import fails


def attempts_stored(shop: Shop) -> int:
    return len(shop.backend.table.scan(f"subscription-attempts/{NAME}"))


def bounds_stored(shop: Shop) -> int:
    return len(shop.backend.table.scan(f"group-reach/subscription:{NAME}"))


def test_the_lag_of_a_key_is_derived_from_the_queues() -> None:
    shop = Shop()
    shop.push("a", 1, 2, 3)
    shop.push("b", 4)
    shop.owner().run(fails(1))
    owner = shop.owner()
    shop.push("a", 5)
    owner.run()
    assert owner.lag(Queue.RQ, "a") == 4
    assert owner.calls == []
    owner.run_until_idle(lambda value: SUCCESS)
    assert [value for value, _ in owner.calls] == [1, 2, 3, 5]


@pytest.mark.parametrize("clean", [True, False], ids=["restarted", "killed"])
@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_attempts_are_counted_over_restarts_between_them(clean: bool, policy: OnDeadLetter) -> None:
    shop = Shop(attempts=4, policy=policy)
    shop.push("a", 1, 2)
    calls: list[tuple[Any, int]] = []
    for _ in range(8):
        owner = shop.owner()
        owner.run(fails(1))
        calls += owner.calls
        if clean:
            owner.leave()
        shop.now += RETRY_S
    followers = [] if policy is OnDeadLetter.BLOCK else [(2, 1)]
    assert calls == [(1, 1), (1, 2), (1, 3), (1, 4), *followers]
    assert shop.queued(Queue.DLQ)[0] == 1


def test_a_delay_is_kept_over_a_takeover_and_bounded_whatever_the_clock_says() -> None:
    shop = Shop()
    shop.push("a", 1)
    shop.owner().run(fails(1))
    shop.now = 2.0
    owner = shop.owner()
    owner.run()
    assert owner.machine.due == pytest.approx(RETRY_S)
    shop.now = -1000.0  # the clock of another host is behind
    owner = shop.owner()
    owner.run()
    assert owner.machine.due == pytest.approx(shop.now + RETRY_S)


def test_an_orderly_end_leaves_nothing_behind_that_looks_like_a_crash() -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    shop.push("b", 3)
    owner = shop.owner()
    owner.run(fails(1, times=1))
    shop.now += RETRY_S
    owner.advance()  # the next attempt is prepared, and not called
    owner.leave()
    assert (bounds_stored(shop), attempts_stored(shop)) == (0, 1)
    owner = shop.owner()
    assert owner.start_calls() == [1]
    assert not owner.in_flight[1].alone


def test_a_worker_that_was_replaced_writes_nothing() -> None:
    shop = Shop()
    shop.push("a", 1)
    late = shop.owner()
    late.start_calls()
    owner = shop.owner()
    owner.run()
    late.finish(1, FAILED)
    with pytest.raises(Fenced):
        late.commit()
    assert shop.queued(Queue.RQ) == []


def kill_in_flight(shop: Shop, killer: int) -> Owner:
    """Start an owner that dies as soon as it calls the killer; else it finishes what it calls."""
    owner = shop.owner()
    while (in_flight := owner.start_calls()) and killer not in in_flight:
        for value in in_flight:
            owner.finish(value)
    owner.advance()
    if not in_flight:
        owner.commit()
    return owner


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("queue", [Queue.MQ, Queue.RQ])
def test_a_payload_that_kills_the_worker_is_parked_and_none_that_was_beside_it(
    attempts: int, queue: Queue
) -> None:
    shop = Shop(attempts=attempts + (queue is Queue.RQ), concurrency=64)
    for number in range(40):
        shop.push(f"k{number}", number)
    if queue is Queue.RQ:
        shop.owner().run(lambda value: FAILED)
        shop.now += RETRY_S
    lives = 0
    while 7 in kill_in_flight(shop, 7).in_flight:
        lives += 1
        assert lives < 20
    assert lives == 1 + attempts
    assert shop.queued(Queue.DLQ) == [7]


def test_what_may_have_been_in_flight_is_called_alone() -> None:
    shop = Shop(concurrency=8)
    for number in range(20):
        shop.push(f"k{number}", number)
    assert len(shop.owner().start_calls()) == 8
    owner = shop.owner()
    alone = []
    while in_flight := owner.start_calls():
        alone.append(len(in_flight) == 1 and owner.in_flight[in_flight[0]].alone)
        for value in in_flight:
            owner.finish(value)
    assert alone[:8] == [True] * 8
    owner.commit()
    owner.leave()
    assert (bounds_stored(shop), attempts_stored(shop)) == (0, 0)


def test_messages_that_came_after_the_crash_are_not_suspect() -> None:
    shop = Shop(concurrency=8)
    shop.push("a", 1)
    shop.owner().start_calls()
    owner = shop.owner()
    owner.step()
    shop.push("b", 2)
    assert owner.start_calls() == [1]
    owner.finish(1)
    assert owner.start_calls() == [2]
    assert not owner.in_flight[2].alone


def test_a_suspect_that_was_not_called_stays_suspect_after_an_orderly_end() -> None:
    shop = Shop(concurrency=8)
    shop.push("a", 1)
    shop.push("b", 2)
    assert shop.owner().start_calls() == [1, 2]
    owner = shop.owner()
    assert owner.start_calls() == [1]
    owner.finish(1)
    owner.leave()
    owner = shop.owner()
    assert owner.start_calls() == [2]
    assert owner.in_flight[2].alone
