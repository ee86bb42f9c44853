"""Dead letters are discarded when an operator asks for it: acknowledged undelivered."""

from __future__ import annotations

import pytest

from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.requests.request import RequestAction
from tests.support.letter_requests import (
    ask,
    audited,
    key_target,
    letters_target,
    nothing_is_left,
)
from tests.support.shards import FAILED, REJECTED, Shop
from tests.unit.subscription.shard.requests.test_redelivery import down, parked, work

DISCARD = RequestAction.DISCARD
REDELIVER = RequestAction.REDELIVER


def attempts_stored(shop: Shop) -> int:
    return len(shop.backend.table.scan("subscription-attempts/crm"))


def test_the_first_letter_is_discarded_and_those_behind_it_stay_parked() -> None:
    shop, owner = parked(1, 2, 3)
    assert attempts_stored(shop) == 1
    ask(shop, DISCARD, letters_target("a", 0))
    assert work(owner) == []
    assert (owner.lag(Queue.DLQ, "a"), attempts_stored(shop)) == (2, 0)
    assert audited(shop) == ["1 dead letter discarded"]
    assert nothing_is_left(shop)


def test_a_letter_in_the_middle_is_discarded_and_the_others_keep_their_order() -> None:
    shop, owner = parked(1, 2, 3)
    ask(shop, DISCARD, letters_target("a", 1))
    work(owner)
    ask(shop, REDELIVER, key_target("a"), id="r2")
    assert work(owner) == [1, 3]


def test_discarding_a_key_spares_the_letters_that_came_after_the_request() -> None:
    shop, owner = parked(1, 2)
    ask(shop, DISCARD, key_target("a", until=1))
    shop.push("a", 3)
    owner.machine.wake(owner.stored.streams(0).mq)
    owner.advance()
    assert owner.lag(Queue.DLQ, "a") == 3
    work(owner)
    assert owner.lag(Queue.DLQ, "a") == 1
    ask(shop, REDELIVER, key_target("a"), id="r2")
    assert work(owner) == [3]


def test_a_letter_that_failed_and_is_discarded_before_that_is_stored_leaves_no_attempts() -> None:
    shop, owner = parked(1)
    ask(shop, REDELIVER, key_target("a"))
    owner.read_requests()
    assert owner.start_calls() == [1]
    shop.backend.before = down
    owner.finish(1, FAILED)
    assert not owner.commit()
    ask(shop, DISCARD, letters_target("a", 0), id="r2")
    owner.read_requests()
    owner.advance()
    shop.backend.before = lambda transaction: None
    work(owner)
    assert (owner.lag(Queue.DLQ, "a"), attempts_stored(shop)) == (0, 0)
    assert nothing_is_left(shop)


def test_a_key_without_letters_flows_again() -> None:
    shop, owner = parked(1, 2)
    ask(shop, DISCARD, key_target("a", until=1))
    work(owner)
    assert owner.lag(Queue.DLQ, "a") == 0
    shop.push("a", 3)
    owner.machine.wake(owner.stored.streams(0).mq)
    assert work(owner) == [3]


@pytest.mark.parametrize("key", ["a", None])
def test_under_continue_a_letter_is_discarded_too(key: str | None) -> None:
    shop, owner = parked(1, 2, key=key, policy=OnDeadLetter.CONTINUE)
    ask(shop, DISCARD, letters_target(key, 1))
    assert work(owner) == []
    assert attempts_stored(shop) == 1
    again = shop.owner()
    ask(shop, REDELIVER, letters_target(key, 0), letters_target(key, 1), id="r2")
    assert work(again) == [1]
    assert audited(shop)[1] == "1 dead letter redelivered; 1 not pending any more"


def test_a_discard_waits_for_the_redelivery_of_the_same_key() -> None:
    shop, owner = parked(1, 2)
    ask(shop, REDELIVER, letters_target("a", 0))
    ask(shop, DISCARD, key_target("a", until=1), id="r2")
    owner.read_requests()
    assert owner.start_calls() == [1]
    assert owner.lag(Queue.DLQ, "a") == 2
    owner.finish(1, FAILED)
    owner.run()
    assert owner.lag(Queue.DLQ, "a") == 0
    assert audited(shop) == ["0 dead letters redelivered; 1 failed", "2 dead letters discarded"]


def test_many_letters_are_discarded_in_several_commits() -> None:
    shop = Shop()
    shop.push("a", *range(2500))
    owner = shop.owner()
    owner.run(lambda value: REJECTED)
    sizes: list[int] = []
    ask(shop, DISCARD, key_target("a", until=2499))
    shop.backend.before = lambda transaction: sizes.append(len(transaction.table))
    work(owner)
    assert owner.lag(Queue.DLQ, "a") == 0
    assert audited(shop) == ["2,500 dead letters discarded"]
    assert len(sizes) >= 3
