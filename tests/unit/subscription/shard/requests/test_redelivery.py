"""Dead letters are redelivered when an operator asks for it: in order, and only those."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tailrace.backend.contract import Transaction
from tailrace.delivery.outcome import SUCCESS, CallOutcome, OutcomeKind
from tailrace.errors import BackendUnavailable
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.requests.request import RequestAction, RequestTarget
from tailrace.subscription.shard.requests.state import RequestState, decode_state
from tailrace.subscription.store.requests.entries import read_requests
from tests.support.letter_requests import (
    ask,
    audited,
    key_target,
    letters_target,
    nothing_is_left,
)
from tests.support.shards import FAILED, NAME, REJECTED, RETRY_S, Owner, Shop, fails

REDELIVER = RequestAction.REDELIVER


def parked(*values: int, key: str | None = "a", **options: Any) -> tuple[Shop, Owner]:
    """Return a shop in whose DLQ these messages are, and its owner."""
    shop = Shop(**options)
    shop.push(key, *values)
    owner = shop.owner()
    owner.run(lambda value: REJECTED)
    assert shop.queued(Queue.DLQ) == list(values)
    owner.calls.clear()
    return shop, owner


def work(owner: Owner, handler: Any = lambda value: SUCCESS) -> list[int]:
    """Learn of requests, and carry them out. Returns the values that were called, in order."""
    owner.read_requests()
    owner.run(handler)
    return [value for value, _ in owner.calls]


def down(transaction: Transaction) -> None:
    raise BackendUnavailable("the disk is full", "free some space")


def all_letters(policy: OnDeadLetter, *offsets: int) -> RequestTarget:
    """Return the target that a redelivery by key has under a policy."""
    blocks = policy is OnDeadLetter.BLOCK
    return key_target("a") if blocks else letters_target("a", *offsets)


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_the_letters_of_a_key_are_redelivered_in_order_until_none_is_left(
    policy: OnDeadLetter,
) -> None:
    shop, owner = parked(1, 2, 3, policy=policy)
    ask(shop, REDELIVER, all_letters(policy, 0, 1, 2))
    assert work(owner) == [1, 2, 3]
    assert owner.lag(Queue.DLQ, "a") == 0
    assert audited(shop) == ["3 dead letters redelivered"]
    assert nothing_is_left(shop)
    assert shop.backend.table.scan("subscription-attempts/crm") == []


def test_messages_that_come_meanwhile_follow_into_the_dead_letters_and_are_redelivered_too() -> (
    None
):
    shop, owner = parked(1, 2)
    ask(shop, REDELIVER, key_target("a"))
    coming = iter(range(3, 40))

    def handler(value: int) -> CallOutcome:
        following = next(coming, None)
        if value < 10 and following is not None:
            shop.push("a", following)
            owner.machine.wake(owner.stored.streams(0).mq)
        return SUCCESS

    called = work(owner, handler)
    assert called == list(range(1, len(called) + 1))
    assert len(shop.queued(Queue.DLQ)) > 2
    assert owner.lag(Queue.DLQ, "a") == 0
    shop.push("a", 100)
    owner.machine.wake(owner.stored.streams(0).mq)
    assert work(owner)[-1] == 100
    assert 100 not in shop.queued(Queue.DLQ)


def test_a_redelivery_waits_for_a_message_that_is_being_appended_to_the_dead_letters() -> None:
    shop, owner = parked(1)
    ask(shop, REDELIVER, key_target("a"))
    owner.read_requests()
    assert owner.start_calls() == [1]
    shop.push("a", 2)
    owner.machine.wake(owner.stored.streams(0).mq)
    shop.backend.before = down
    owner.advance()
    owner.finish(1)
    owner.advance()
    shop.backend.before = lambda transaction: None
    assert work(owner) == [1, 2]
    assert owner.lag(Queue.DLQ, "a") == 0
    assert audited(shop) == ["2 dead letters redelivered"]


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_a_redelivery_that_fails_leaves_the_letter_first_and_ends_the_request(
    policy: OnDeadLetter,
) -> None:
    shop, owner = parked(1, 2, 3, policy=policy)
    ask(shop, REDELIVER, all_letters(policy, 0, 1, 2))
    assert work(owner, fails(2)) == [1, 2]
    assert audited(shop) == ["1 dead letter redelivered; 1 failed"]
    assert nothing_is_left(shop)
    ask(shop, REDELIVER, all_letters(policy, 0, 1, 2), id="r2")
    again = shop.owner()
    again.run()
    followed = policy is OnDeadLetter.BLOCK  # they were not attempted before
    assert again.calls == ([(2, 2), (3, 1)] if followed else [(2, 3), (3, 2)])
    assert again.lag(Queue.DLQ, "a") == 0


def test_other_keys_stay_parked() -> None:
    shop, owner = parked(1, 2)
    shop.push("b", 3)
    owner.machine.wake(owner.stored.streams(0).mq)
    owner.run(lambda value: REJECTED)
    ask(shop, REDELIVER, key_target("b"))
    owner.calls.clear()
    assert work(owner) == [3]
    assert owner.lag(Queue.DLQ, "a") == 2


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_one_letter_is_redelivered_and_those_behind_it_stay(policy: OnDeadLetter) -> None:
    shop, owner = parked(1, 2, 3, policy=policy)
    ask(shop, REDELIVER, letters_target("a", 0))
    assert work(owner) == [1]
    assert audited(shop) == ["1 dead letter redelivered"]
    if policy is OnDeadLetter.BLOCK:
        shop.push("a", 4)
        owner.machine.wake(owner.stored.streams(0).mq)
        assert work(owner) == [1]
        assert shop.queued(Queue.DLQ) == [1, 2, 3, 4]


def test_a_letter_that_is_not_the_first_of_its_key_is_refused() -> None:
    shop, owner = parked(1, 2, 3)
    ask(shop, REDELIVER, letters_target("a", 1))
    assert work(owner) == []
    assert owner.lag(Queue.DLQ, "a") == 3
    assert audited(shop) == ["0 dead letters redelivered; 1 refused: not the first of its key"]
    assert nothing_is_left(shop)


def test_a_letter_that_is_not_the_first_is_redelivered_if_the_order_may_break() -> None:
    shop, owner = parked(1, 2, 3)
    ask(shop, REDELIVER, letters_target("a", 1), break_order=True)
    assert work(owner) == [2]
    ask(shop, REDELIVER, key_target("a"), id="r2")
    assert work(owner) == [2, 1, 3]
    assert owner.lag(Queue.DLQ, "a") == 0


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_letters_without_a_key_are_redelivered_by_themselves(policy: OnDeadLetter) -> None:
    shop, owner = parked(1, 2, 3, key=None, policy=policy, attempts=1)
    ask(shop, REDELIVER, letters_target(None, 2), letters_target(None, 0))
    assert sorted(work(owner)) == [1, 3]
    ask(shop, REDELIVER, letters_target(None, 1), id="r2")
    assert sorted(work(owner)) == [1, 2, 3]
    assert nothing_is_left(shop)


def test_a_letter_that_is_redelivered_already_changes_nothing() -> None:
    shop, owner = parked(1, 2)
    ask(shop, REDELIVER, letters_target("a", 0))
    work(owner)
    ask(shop, REDELIVER, letters_target("a", 0), id="r2")
    assert work(owner) == [1]
    assert audited(shop)[1] == "0 dead letters redelivered; 1 not pending any more"


def test_two_requests_for_a_letter_redeliver_it_once() -> None:
    shop, owner = parked(1)
    ask(shop, REDELIVER, letters_target("a", 0))
    ask(shop, REDELIVER, key_target("a"), id="r2")
    assert work(owner) == [1]
    assert len(audited(shop)) == 2
    assert nothing_is_left(shop)


def test_a_request_that_is_read_again_changes_nothing() -> None:
    shop, owner = parked(1)
    ask(shop, REDELIVER, key_target("a"))
    owner.read_requests()
    owner.read_requests()
    assert work(owner) == [1]
    owner.read_requests()
    assert audited(shop) == ["1 dead letter redelivered"]


def test_a_request_that_was_read_before_its_end_and_is_added_after_it_changes_nothing() -> None:
    shop, owner = parked(1)
    ask(shop, REDELIVER, key_target("a"))
    (late,) = read_requests(shop.backend, NAME, 0)
    assert work(owner) == [1]
    owner.machine.request(late)
    owner.run()
    assert audited(shop) == ["1 dead letter redelivered"]
    assert nothing_is_left(shop)


def test_under_continue_a_message_of_the_key_waits_for_the_redelivery() -> None:
    shop, owner = parked(1, 2, policy=OnDeadLetter.CONTINUE)
    shop.push("a", 3, 4)
    owner.machine.wake(owner.stored.streams(0).mq)
    assert owner.start_calls() == [3]
    ask(shop, REDELIVER, letters_target("a", 0, 1))
    owner.read_requests()
    assert owner.start_calls() == [3]
    owner.finish(3)
    assert owner.start_calls() == [1]
    owner.finish(1)
    assert owner.start_calls() == [2]
    owner.finish(2)
    assert owner.start_calls() == [4]


def test_a_redelivery_leaves_a_part_of_the_concurrency_to_others() -> None:
    shop = Shop(concurrency=4)
    for number in range(8):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    owner.run(lambda value: REJECTED)
    ask(shop, REDELIVER, *(key_target(f"k{number}") for number in range(8)))
    owner.read_requests()
    for number in range(8):
        shop.push(f"healthy{number}", 100 + number)
    owner.machine.wake(owner.stored.streams(0).mq)
    in_flight = owner.start_calls()
    assert len([value for value in in_flight if value < 100]) == 2
    owner.run()
    assert audited(shop) == ["8 dead letters redelivered"]


def test_redeliveries_that_wait_for_an_attempt_keep_no_place_from_other_keys() -> None:
    shop = Shop(concurrency=4)
    for number in range(8):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    owner.run(lambda value: REJECTED)
    owner.calls.clear()
    ask(shop, REDELIVER, *(key_target(f"k{number}") for number in range(8)), attempts=3)
    flaky = fails(0, 1, 2, times=2)
    assert sorted(work(owner, flaky)) == list(range(8))
    assert owner.lag(Queue.DLQ, "k7") == 0
    owner.run_until_idle(flaky)
    assert sorted(value for value, _ in owner.calls) == [0, 0, 0, 1, 1, 1, 2, 2, 2, *range(3, 8)]
    assert audited(shop) == ["8 dead letters redelivered"]


def test_a_letter_is_not_called_before_its_attempt_is_stored() -> None:
    shop, owner = parked(1)
    ask(shop, REDELIVER, key_target("a"))
    owner.read_requests()
    owner.start_calls()
    ((_, value),) = shop.backend.table.scan("subscription-attempts/crm")
    assert b'"begun":"shared"' in value
    owner.finish(1, FAILED)
    owner.commit()
    ((_, value),) = shop.backend.table.scan("subscription-attempts/crm")
    assert b'"count":2' in value
    assert b"no stock" in value


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_with_attempts_a_letter_that_fails_is_called_again_after_a_delay_and_the_next_ones_follow(
    policy: OnDeadLetter,
) -> None:
    shop, owner = parked(1, 2, 3, policy=policy)
    ask(shop, REDELIVER, all_letters(policy, 0, 1, 2), attempts=3)
    flaky = fails(1, 2, times=2)
    assert work(owner, flaky) == [1]  # the delay has not passed
    owner.run_until_idle(flaky)
    assert [value for value, _ in owner.calls] == [1, 1, 1, 2, 2, 2, 3]
    assert audited(shop) == ["3 dead letters redelivered"]
    assert nothing_is_left(shop)


def test_a_letter_that_has_used_up_the_attempts_of_its_request_ends_the_redelivery() -> None:
    shop, owner = parked(1, 2)
    ask(shop, REDELIVER, key_target("a"), attempts=3)
    owner.read_requests()
    owner.run_until_idle(fails(1))
    assert [value for value, _ in owner.calls] == [1, 1, 1]
    assert owner.lag(Queue.DLQ, "a") == 2
    assert audited(shop) == ["0 dead letters redelivered; 1 failed"]


def test_a_letter_that_is_rejected_again_is_not_called_again() -> None:
    shop, owner = parked(1, 2)
    ask(shop, REDELIVER, key_target("a"), attempts=3)
    owner.read_requests()
    owner.run_until_idle(lambda value: REJECTED)
    assert [value for value, _ in owner.calls] == [1]
    assert audited(shop) == ["0 dead letters redelivered; 1 failed"]


@pytest.mark.parametrize("clean", [True, False], ids=["restarted", "killed"])
@pytest.mark.parametrize("asked_s", [None, 3600.0], ids=["policy", "RetryLater"])
def test_the_attempts_of_a_request_and_their_delays_are_kept_over_takeovers(
    clean: bool, asked_s: float | None
) -> None:
    shop, owner = parked(1, 2)
    ask(shop, REDELIVER, key_target("a"), attempts=3)
    delay_s = asked_s or RETRY_S
    asked = None if asked_s is None else timedelta(seconds=asked_s)
    later = CallOutcome(OutcomeKind.RETRY, "later", asked)
    times = []
    for _ in range(12):
        owner.read_requests()
        owner.run(lambda value: later)
        times += [shop.now] * len(owner.calls)
        if clean:
            owner.leave()
        shop.now += delay_s / 2
        owner = shop.owner()
    assert times == [0.0, delay_s, 2 * delay_s]
    assert audited(shop) == ["0 dead letters redelivered; 1 failed"]
    assert nothing_is_left(shop)


def test_a_letter_that_succeeds_leaves_the_attempts_of_its_request_to_the_next_one() -> None:
    shop, owner = parked(1, 2)
    ask(shop, REDELIVER, key_target("a"), attempts=2)
    work(owner, fails(1))
    shop.now += RETRY_S
    owner.run(fails(2))
    owner.leave()
    owner = shop.owner()
    owner.run_until_idle(fails(2, times=0))
    assert [value for value, _ in owner.calls] == [2]
    assert audited(shop) == ["2 dead letters redelivered"]


def test_the_state_of_a_request_that_was_stored_without_failures_is_readable() -> None:
    assert decode_state(b'{"outcomes":".d","letters":3}') == RequestState(".d", 3, ())


def test_the_next_owner_continues_a_redelivery_that_waits_for_an_attempt() -> None:
    shop, owner = parked(1, 2)
    ask(shop, REDELIVER, key_target("a"), attempts=2)
    assert work(owner, fails(1)) == [1]
    owner.leave()
    owner = shop.owner()
    owner.run_until_idle(lambda value: SUCCESS)
    assert [value for value, _ in owner.calls] == [1, 2]
    assert audited(shop) == ["2 dead letters redelivered"]
