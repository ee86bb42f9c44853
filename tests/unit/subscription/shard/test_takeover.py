"""A new owner continues where the last one was, however that ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tailrace.backend.contract import Transaction
from tailrace.delivery.outcome import SUCCESS, CallOutcome, OutcomeKind
from tailrace.errors import Fenced
from tailrace.group.store.presence import HOLDS
from tailrace.log.record import Record
from tailrace.log.redelivered import FOR
from tailrace.message import Mode, Op
from tailrace.subscription.shard.permits import decode_permits
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.store.takeover import read_takeover
from tests.support.shards import FAILED, NAME, RETRY_S, Owner, Shop, fails, stored


def attempts_stored(shop: Shop) -> int:
    return len(shop.backend.table.scan(f"subscription-attempts/{NAME}"))


def permits_stored(shop: Shop) -> int:
    found = shop.backend.table.scan(f"subscription-permits/{NAME}")
    return sum(len(decode_permits(value).offsets) for _, value in found)


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


def test_a_delay_that_the_handler_asked_for_is_kept_over_a_takeover_however_long_it_is() -> None:
    shop = Shop()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    owner.finish(1, CallOutcome(OutcomeKind.RETRY, "later", timedelta(hours=2)))
    owner.leave()
    shop.now = 60.0
    owner = shop.owner()
    owner.run()
    assert owner.machine.due == pytest.approx(7200.0)
    shop.now = -1000.0  # the clock of another host is behind
    owner = shop.owner()
    owner.run()
    assert owner.machine.due == pytest.approx(shop.now + 7200.0)


@pytest.mark.parametrize("queue", [Queue.RQ, Queue.DLQ])
def test_a_record_of_a_queue_that_is_for_another_consumer_holds_back_no_key(queue: Queue) -> None:
    shop = Shop()
    streams = stored(shop.backend).streams(0)
    (partition,) = streams.rq if queue is Queue.RQ else streams.dlq
    foreign = Record(0, 0, Mode.SYNC, Op.INSERT, b"a", {FOR: b"billing"}, b"7")
    shop.backend.commit(Transaction(((partition, (foreign,)),)))
    shop.push("a", 1)
    owner = shop.owner()
    assert owner.start_calls() == [1]


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_a_new_owner_does_not_load_the_attempts_of_dead_letters(policy: OnDeadLetter) -> None:
    shop = Shop(attempts=2, policy=policy)
    shop.push("a", 1)
    shop.push("b", 2)
    shop.push("c", 3)
    owner = shop.owner()
    owner.run_until_idle(lambda value: SUCCESS if value == 3 else FAILED)
    shop.push("c", 4)
    owner.machine.wake(owner.stored.streams(0).mq)
    owner.run(fails(4))
    assert (attempts_stored(shop), shop.queued(Queue.DLQ)) == (3, [1, 2])
    (loaded,) = read_takeover(shop.backend, stored(shop.backend), 0).attempts.values()
    assert loaded.count == 1


def test_an_orderly_end_leaves_nothing_behind_that_looks_like_a_crash() -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    shop.push("b", 3)
    owner = shop.owner()
    owner.run(fails(1, times=1))
    shop.now += RETRY_S
    owner.advance()  # the next attempt is prepared, and not called
    owner.leave()
    assert (permits_stored(shop), attempts_stored(shop)) == (0, 1)
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
    assert (permits_stored(shop), attempts_stored(shop)) == (0, 0)


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


def test_messages_that_were_permitted_and_not_called_are_not_suspect_after_an_orderly_end() -> None:
    shop = Shop(concurrency=4)
    for number in range(8):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    assert owner.start_calls(at_most=1) == [0]
    assert permits_stored(shop) > 1
    owner.finish(0)
    owner.leave()
    assert permits_stored(shop) == 0
    owner = shop.owner()
    assert owner.start_calls() == [1, 2, 3, 4]


def test_a_call_alone_counts_only_if_its_worker_had_ended_when_the_next_owner_came() -> None:
    shop = Shop()
    shop.push("a", 1)
    shop.owner().start_calls()
    alone = shop.owner()
    alone.start_calls()
    assert alone.in_flight[1].alone
    hold = shop.backend.hold(HOLDS + "w1", "the process of all owners here")
    second = shop.owner()
    second.advance()
    second.commit()
    hold.release()
    third = shop.owner()
    third.start_calls()
    assert third.calls == [(1, 1)], "no attempt has failed"


def test_what_was_in_flight_in_a_process_that_lives_is_not_suspect() -> None:
    """It has lost the shard, for example because its database did not answer."""
    shop = Shop(concurrency=4)
    for number in range(6):
        shop.push(f"k{number}", number)
    hold = shop.backend.hold(HOLDS + "w1", "the process of all owners here")
    assert len(shop.owner().start_calls()) == 4
    second = shop.owner()
    assert len(second.start_calls()) == 4
    assert not any(turn.alone for turn in second.in_flight.values())
    hold.release()
    third = shop.owner()
    third.start_calls()
    assert all(turn.alone for turn in third.in_flight.values()), "now one of them may have ended it"


def test_the_permits_of_a_process_that_lives_are_removed_by_an_orderly_end() -> None:
    shop = Shop(concurrency=4)
    shop.push("a", 1)
    with_hold = shop.backend.hold(HOLDS + "w1", "the process of all owners here")
    shop.owner().start_calls()
    assert permits_stored(shop) == 1
    second = shop.owner()
    second.advance()
    second.leave()
    assert permits_stored(shop) == 0
    with_hold.release()


def test_messages_that_waited_behind_others_of_their_key_are_not_suspect() -> None:
    shop = Shop(concurrency=2)
    for number in range(100):
        shop.push("hot", number)
        shop.push(f"k{number}", 1000 + number)
    owner = shop.owner()
    for _ in range(60):
        for value in owner.start_calls():
            if value >= 1000:
                owner.finish(value)
    owner.commit()
    assert permits_stored(shop) <= (4 + 1) * shop.concurrency
    again, alone = shop.owner(), 0
    while in_flight := again.start_calls():
        alone += sum(turn.alone for turn in again.in_flight.values())
        for value in in_flight:
            again.finish(value)
    assert 0 < alone <= (4 + 1) * shop.concurrency


def test_one_commit_permits_several_calls_of_one_key() -> None:
    shop = Shop(concurrency=4)
    shop.push("a", *range(100))
    owner, commits = shop.owner(), list[Transaction]()
    shop.backend.before = commits.append
    owner.run()
    assert len(owner.calls) == 100
    assert len(commits) < 30
