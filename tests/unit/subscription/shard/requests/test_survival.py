"""A request survives the worker that works on it, has effect once and is audited once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from tailrace.backend.contract import Change, Transaction
from tailrace.delivery.outcome import SUCCESS, CallOutcome
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.requests.request import RequestAction, RequestTarget
from tests.support.faulty_backend import once, unknown
from tests.support.letter_requests import (
    ask,
    audited,
    key_target,
    letters_target,
    nothing_is_left,
)
from tests.support.shards import FAILED, REJECTED, Owner, Shop

DISCARD = RequestAction.DISCARD
REDELIVER = RequestAction.REDELIVER


class _Killed(Exception):
    """The worker ends."""


class _Killer:
    """Ends the worker at one of its writes, before or after it is stored."""

    def __init__(self, shop: Shop, at: int, *, after: bool) -> None:
        self.left = at
        self.shop = shop
        self._store = shop.backend.store.commit
        if after:
            shop.backend.after = self._count
        else:
            shop.backend.before = self._count
        shop.backend.store.commit = self._change  # type: ignore[method-assign]
        self._after = after

    def _change(self, change: Change) -> int:
        removes = None in change.writes.values()
        if removes and not self._after:
            self._count()
        version = self._store(change)
        if removes and self._after:
            self._count()
        return version

    def _count(self, transaction: Transaction | None = None) -> None:
        self.left -= 1
        if self.left == -1:
            raise _Killed


def letters(shop: Shop, key: str, *values: int) -> RequestTarget:
    """Return the letters with these values as a target."""
    queued = shop.queued(Queue.DLQ)
    return letters_target(key, *(queued.index(value) for value in values))


def run_with_kills(
    make: Callable[[Shop], None], handler: Callable[[int], CallOutcome], policy: OnDeadLetter
) -> list[tuple[Shop, list[tuple[Any, int]]]]:
    """Run a shop once for each write at which its owner can be killed. Returns the shops, and the
    calls of all owners."""
    found = []
    for after in (False, True):
        for at in count():
            shop = Shop(policy=policy)
            for key, value in (("a", 1), ("b", 10), ("a", 2), ("a", 3), ("b", 11)):
                shop.push(key, value)
            shop.owner().run(lambda value: REJECTED)
            make(shop)
            killer = _Killer(shop, at, after=after)
            calls = []
            for _ in range(3):
                owner = Owner(shop, 0)
                with suppress(_Killed):
                    owner.run(handler)
                    owner.leave()
                calls += owner.calls
            found.append((shop, calls))
            if killer.left >= 0:
                break
    return found


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_a_redelivery_continues_after_any_write_at_which_the_worker_ends(
    policy: OnDeadLetter,
) -> None:
    def make(shop: Shop) -> None:
        if policy is OnDeadLetter.BLOCK:
            ask(shop, REDELIVER, key_target("a"), key_target("b"))
        else:
            ask(shop, REDELIVER, letters(shop, "a", 1, 2, 3), letters(shop, "b", 10, 11))

    runs = run_with_kills(make, lambda value: SUCCESS, policy)
    assert len(runs) > 10
    for shop, calls in runs:
        for key in ((1, 2, 3), (10, 11)):
            first = list(dict.fromkeys(value for value, _ in calls if value in key))
            assert first == list(key)
        assert audited(shop) == ["5 dead letters redelivered"]
        assert nothing_is_left(shop)


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_what_came_of_a_key_is_decided_once(policy: OnDeadLetter) -> None:
    """A key whose redelivery has failed is not attempted again, whatever happens to the rest."""

    def make(shop: Shop) -> None:
        ask(shop, REDELIVER, letters(shop, "a", 1), letters(shop, "b", 10))

    runs = run_with_kills(make, lambda value: FAILED if value == 1 else SUCCESS, policy)
    for shop, calls in runs:
        stored = Counter(attempt for value, attempt in calls if value == 1)
        assert set(stored) == {2}
        assert audited(shop) == ["1 dead letter redelivered; 1 failed"]
        assert nothing_is_left(shop)


@pytest.mark.parametrize("policy", list(OnDeadLetter))
def test_a_discard_has_effect_once_and_is_audited_once(policy: OnDeadLetter) -> None:
    def make(shop: Shop) -> None:
        ask(shop, DISCARD, letters(shop, "a", 2, 3))

    for shop, calls in run_with_kills(make, lambda value: SUCCESS, policy):
        assert calls == []
        assert audited(shop) == ["2 dead letters discarded"]
        assert nothing_is_left(shop)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_a_commit_with_an_unknown_outcome_is_audited_once(stored: bool) -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    shop.owner().run(lambda value: REJECTED)
    ask(shop, DISCARD, key_target("a", until=1))
    owner = shop.owner()
    if stored:
        shop.backend.after = once(unknown)
    else:
        shop.backend.before = once(unknown)
    owner.advance()
    assert owner.lost
    again = shop.owner()
    again.run()
    assert audited(shop) == ["2 dead letters discarded"]
    assert nothing_is_left(shop)


def test_an_owner_that_leaves_hands_a_request_over() -> None:
    shop = Shop()
    shop.push("a", 1, 2, 3)
    shop.owner().run(lambda value: REJECTED)
    ask(shop, REDELIVER, key_target("a"))
    owner = shop.owner()
    assert owner.start_calls() == [1]
    owner.finish(1)
    owner.leave()
    again = shop.owner()
    again.run()
    assert [value for value, _ in again.calls] == [2, 3]
    assert audited(shop) == ["3 dead letters redelivered"]


def test_a_letter_that_kills_its_worker_ends_the_request() -> None:
    shop = Shop(concurrency=8)
    shop.push("a", 1, 2)
    shop.owner().run(lambda value: REJECTED)
    ask(shop, REDELIVER, key_target("a"))
    lives = 0
    while 1 in shop.owner().start_calls():
        lives += 1
        assert lives < 10
    assert lives == 2  # with others in flight, and then alone
    owner = shop.owner()
    owner.run()
    assert owner.calls == []
    assert owner.lag(Queue.DLQ, "a") == 2
    assert audited(shop) == ["0 dead letters redelivered; 1 failed"]
    assert nothing_is_left(shop)
    ((_, attempts),) = shop.backend.table.scan("subscription-attempts/crm")
    assert b'"count":2' in attempts
    assert b"the worker ended" in attempts


def test_a_key_that_fails_again_is_not_redelivered_twice_by_one_request() -> None:
    shop = Shop()
    shop.push("a", 1)
    shop.push("b", 10)
    owner = shop.owner()
    owner.run(lambda value: REJECTED)
    ask(shop, REDELIVER, key_target("a"), key_target("b"))
    owner = shop.owner()
    assert owner.start_calls() == [1, 10]
    owner.finish(1)
    shop.push("a", 2)
    owner.advance()
    owner.machine.wake(owner.stored.streams(0).mq)
    assert owner.start_calls() == [10, 2]
    owner.finish(2, REJECTED)
    owner.commit()
    assert owner.lag(Queue.DLQ, "a") == 1
    again = shop.owner()
    again.run()
    assert [value for value, _ in again.calls] == [10]
    assert again.lag(Queue.DLQ, "a") == 1
    assert audited(shop) == ["2 dead letters redelivered"]
