"""A message that fails steps aside with its key; every other key continues."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tailrace.delivery.outcome import SUCCESS, CallOutcome, OutcomeKind
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.step import StepKind
from tests.support.shards import FAILED, REJECTED, RETRY_S, Shop, fails


def test_of_ten_messages_of_a_failing_key_one_is_called_and_other_keys_are_done() -> None:
    shop = Shop()
    shop.push("bad", *range(10))
    for number in range(50):
        shop.push(f"k{number}", 100 + number)
    owner = shop.owner()
    owner.run(fails(0))
    assert [call for call in owner.calls if call[0] < 100] == [(0, 1)]
    assert {value for value, _ in owner.calls} == {0, *range(100, 150)}
    assert shop.queued(Queue.RQ) == list(range(10))
    assert owner.lag(Queue.RQ, "bad") == 10


def test_the_head_of_a_key_is_retried_in_place_and_its_followers_are_called_after_it() -> None:
    shop = Shop(attempts=5)
    shop.push("a", 1, 2, 3)
    owner = shop.owner()
    owner.run_until_idle(fails(1, times=3))
    assert owner.calls == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (3, 1)]
    assert shop.queued(Queue.RQ) == [1, 2, 3]
    assert shop.now == 3 * RETRY_S
    assert owner.lag(Queue.RQ, "a") == 0


def test_followers_do_not_pay_the_delay() -> None:
    shop = Shop()
    shop.push("a", *range(1000))
    owner = shop.owner()
    owner.run_until_idle(fails(0, times=1))
    assert [value for value, _ in owner.calls] == [0, *range(1000)]
    assert shop.now == RETRY_S


def test_a_handler_sets_the_delay_of_the_next_attempt() -> None:
    shop = Shop()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    owner.finish(1, CallOutcome(OutcomeKind.RETRY, "later", timedelta(seconds=30)))
    owner.advance()
    assert owner.machine.due == 30.0


def test_a_message_out_of_attempts_is_parked_and_its_key_follows_it_in_order() -> None:
    shop = Shop(attempts=3)
    shop.push("a", 1, 2)
    shop.push("b", 3)
    owner = shop.owner()
    owner.run_until_idle(fails(1))
    shop.push("a", 4)
    owner.machine.wake(owner.stored.streams(0).mq)
    owner.run_until_idle(fails(1))
    assert owner.calls == [(1, 1), (3, 1), (1, 2), (1, 3)]
    assert shop.queued(Queue.DLQ) == [1, 2, 4]
    assert (owner.lag(Queue.DLQ, "a"), owner.lag(Queue.RQ, "a")) == (3, 0)


def test_under_continue_a_dead_letter_holds_nothing_back() -> None:
    shop = Shop(attempts=2, policy=OnDeadLetter.CONTINUE)
    shop.push("a", 1, 2, 3)
    owner = shop.owner()
    owner.run_until_idle(fails(1))
    assert owner.calls == [(1, 1), (1, 2), (2, 1), (3, 1)]
    assert shop.queued(Queue.DLQ) == [1]


def test_under_continue_a_key_waits_until_its_dead_letter_is_stored() -> None:
    shop = Shop(attempts=1, policy=OnDeadLetter.CONTINUE)
    shop.push("a", 1, 2)
    owner = shop.owner()
    assert owner.start_calls() == [1]
    owner.finish(1, FAILED)
    assert owner.machine.step(shop.now).kind is not StepKind.CALL
    assert owner.start_calls() == [2]
    assert shop.queued(Queue.DLQ) == [1]


@pytest.mark.parametrize("queue", [Queue.MQ, Queue.RQ])
def test_a_rejected_message_goes_straight_to_the_dead_letters(queue: Queue) -> None:
    shop = Shop(attempts=None)
    shop.push("a", 1, 2)
    owner = shop.owner()
    if queue is Queue.RQ:
        owner.run(fails(1, times=1))
    owner.run_until_idle(lambda value: REJECTED)
    assert len(owner.calls) == (1 if queue is Queue.MQ else 2)
    assert shop.queued(Queue.DLQ) == [1, 2]


def test_a_policy_with_one_attempt_moves_a_failed_message_at_once() -> None:
    shop = Shop(attempts=1)
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.run_until_idle(fails(1))
    assert owner.calls == [(1, 1)]
    assert (shop.queued(Queue.RQ), shop.queued(Queue.DLQ)) == ([], [1, 2])


@pytest.mark.parametrize("key", [None, ""], ids=["none", "empty"])
def test_messages_without_a_key_hold_back_no_other(key: str | None) -> None:
    shop = Shop(attempts=2)
    shop.push(key, 1, 2, 3)
    owner = shop.owner()
    assert owner.start_calls() == [1, 2, 3]
    for value in (1, 2, 3):
        owner.finish(value, FAILED if value == 2 else SUCCESS)
    shop.push(key, 4)
    owner.machine.wake(owner.stored.streams(0).mq)
    owner.run_until_idle(fails(2))
    assert owner.calls == [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2)]
    assert (shop.queued(Queue.RQ), shop.queued(Queue.DLQ)) == ([2], [2])


def test_gaps_of_the_log_hold_nothing_back() -> None:
    shop = Shop(gap_every=2)
    shop.push("a", 1, 2, 3)
    shop.push("b", 4, 5)
    owner = shop.owner()
    owner.run_until_idle(fails(2, times=1))
    owner.leave()
    main = owner.stored.streams(0).mq[0]
    assert owner.machine.ledgers.stored[main].mark == shop.backend.log.bounds(main).end
    again = shop.owner()
    again.run()
    assert again.calls == []


def test_a_message_in_a_queue_says_where_it_came_from() -> None:
    shop = Shop(attempts=2)
    shop.push("a", 1)
    owner = shop.owner()
    owner.run_until_idle(fails(1))
    batch = owner._read(owner.stored.streams(0).dlq[0], 0)
    assert batch.headers[0]["tailrace.position"] == b"orders/0.0@0"
    assert batch.headers[0]["tailrace.writer"] == b"crm"
    assert batch.headers[0]["tailrace.error"] == b"ValueError: no stock"
    assert batch.keys == [b"a"]


def test_a_shop_that_succeeds_keeps_nothing_in_memory() -> None:
    shop = Shop()
    for number in range(2000):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    owner.run()
    lanes = owner.machine.lag.lanes
    assert [len(lanes[queue]) for queue in lanes] == [0, 0, 0]
    assert list(shop.backend.table.scan("subscription-attempts/crm")) == []


@pytest.mark.parametrize("kind", [OutcomeKind.RETRY, OutcomeKind.REJECT])
def test_an_error_that_is_not_unicode_moves_its_message_as_any_other(kind: OutcomeKind) -> None:
    shop = Shop()
    shop.push("a", 1)
    owner = shop.owner()
    owner.run(lambda value: CallOutcome(kind, "OSError: no file \udcff"))
    assert shop.queued(Queue.RQ if kind is OutcomeKind.RETRY else Queue.DLQ) == [1]


def test_a_shop_that_recovers_keeps_nothing_in_memory() -> None:
    shop = Shop()
    for number in range(100):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    owner.run_until_idle(fails(*range(100), times=1))
    (partition,) = owner.stored.streams(0).mq
    book, lanes = owner.machine._book, owner.machine.lag.lanes
    assert not any(Origin(partition, offset) in book for offset in range(100))
    assert [len(lanes[queue]) for queue in lanes] == [0, 0, 0]
    assert list(shop.backend.table.scan("subscription-attempts/crm")) == []


def test_the_messages_that_wait_behind_a_slow_call_are_bounded() -> None:
    shop = Shop()
    shop.push("a", *range(20))
    owner = shop.owner()
    owner.machine.options = replace(owner.machine.options, held_max=10)
    assert owner.start_calls() == [0]
    shop.push("a", *range(20, 40))
    owner.machine.wake(owner.stored.streams(0).mq)
    owner.advance()
    assert len(owner.machine.lag.lanes[Queue.MQ]) == 20, "nothing more is read"
    owner.finish(0)
    owner.run()
    assert [value for value, _ in owner.calls] == list(range(40))
