"""At most once: a message is acknowledged before its call, and never called again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from tailrace.backend.contract import Transaction
from tailrace.delivery.outcome import FILTERED, SUCCESS, CallOutcome
from tailrace.errors import BackendUnavailable
from tailrace.subscription.shard.options import Acking
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.topic.ledger import Progress
from tests.support.faulty_backend import unknown
from tests.support.letter_requests import ask, key_target
from tests.support.shards import FAILED, NAME, REJECTED, RETRY_S, Owner, Shop


class Killed(BaseException):
    """The end of a process, at a write."""


def down(transaction: Transaction) -> None:
    raise BackendUnavailable("the storage does not answer", "try again")


def up(transaction: Transaction) -> None:
    """Let every commit pass."""


def shop_at_most_once(**options: Any) -> Shop:
    return Shop(acking=Acking.BEFORE_CALL, **options)


def stored_acks(shop: Shop, owner: Owner) -> set[int]:
    """Return the offsets below 100 that the stored ledger of the topic holds."""
    main = owner.stored.streams(0).mq[0]
    progress = Progress.load(shop.backend.table, f"subscription:{NAME}", main)
    return {offset for offset in range(100) if progress.acked(offset)}


def attempts(shop: Shop) -> list[bytes]:
    return [key for key, _ in shop.backend.table.scan(f"subscription-attempts/{NAME}")]


def finish_all(owner: Owner, outcome: CallOutcome = SUCCESS) -> None:
    for value in list(owner.in_flight):
        owner.finish(value, outcome)


def test_a_message_is_called_after_its_acknowledgement_is_stored() -> None:
    shop = shop_at_most_once(concurrency=2)
    for number in range(5):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    while owner.start_calls(at_most=1):
        (value,) = owner.in_flight
        assert value in stored_acks(shop, owner)
        owner.finish(value)
    assert sorted(value for value, _ in owner.calls) == list(range(5))


def test_nothing_is_called_while_the_acknowledgement_cannot_be_stored() -> None:
    shop = shop_at_most_once()
    shop.push("a", 1)
    owner = shop.owner()
    shop.backend.before = down
    assert owner.start_calls() == []
    shop.backend.before = up
    assert owner.start_calls() == [1]


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
def test_no_message_is_called_twice_by_workers_that_are_killed_at_any_write(after: bool) -> None:
    called: list[int] = []
    shop = shop_at_most_once(concurrency=3)
    for number in range(120):
        shop.push(f"k{number % 4}", number)
    writes = 0
    for survived in range(60):
        left = survived % 4

        def kill(transaction: Transaction) -> None:
            nonlocal left, writes
            left -= 1
            writes += 1
            if left < 0:
                raise Killed

        owner = shop.owner()
        shop.backend.before, shop.backend.after = (up, kill) if after else (kill, up)
        with suppress(Killed):
            while owner.start_calls():
                finish_all(owner, FAILED)
        shop.backend.before = shop.backend.after = up
        called += [value for value, _ in owner.calls]
    last = shop.owner()
    last.run()
    called += [value for value, _ in last.calls]
    last.leave()
    assert writes > 30
    assert len(called) == len(set(called))
    counts, total = shop.counts(), shop.stats().total
    assert (counts.early, counts.acked, counts.ended) == (120, 120, 120)
    assert 120 > counts.skipped >= 120 - len(called) > 0
    assert (total.acked, total.skipped, shop.stats().conserved) == (120, counts.skipped, True)


def test_a_call_that_had_ended_and_was_stored_is_not_counted_as_skipped() -> None:
    shop = shop_at_most_once(concurrency=2)
    for number in range(4):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    owner.start_calls()
    finish_all(owner)
    assert owner.machine.unsaved, "that the calls have ended is stored too"
    owner.start_calls()
    finish_all(owner)
    owner.commit()
    again = shop.owner()
    again.run()
    again.leave()
    assert again.calls == []
    assert shop.counts().skipped == 0


def test_what_was_in_flight_at_a_kill_is_counted_as_skipped_once() -> None:
    shop = shop_at_most_once(concurrency=2)
    for number in range(4):
        shop.push(f"k{number}", number)
    killed = shop.owner()
    assert killed.start_calls() == [0, 1]
    skipped = len(stored_acks(shop, killed))
    for _ in range(3):
        owner = shop.owner()
        owner.run()
        owner.leave()
    assert 2 <= skipped == shop.counts().skipped
    total = shop.stats().total
    assert (total.acked, total.skipped, total.accounted) == (4, skipped, 4)


@pytest.mark.parametrize("outcome", [FAILED, REJECTED])
def test_a_failure_is_not_retried_and_its_key_continues(outcome: CallOutcome) -> None:
    shop = shop_at_most_once()
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.run_until_idle(lambda value: outcome if value == 1 else SUCCESS)
    assert owner.calls == [(1, 1), (2, 1)]
    assert shop.queued(Queue.RQ) == shop.queued(Queue.DLQ) == []
    assert (shop.counts().failed, shop.counts().acked) == (1, 2)
    assert attempts(shop) == []


def test_a_message_that_a_function_refuses_is_counted_as_filtered() -> None:
    shop = shop_at_most_once()
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.run(lambda value: FILTERED if value == 1 else SUCCESS)
    owner.leave()
    counts = shop.counts()
    assert (counts.acked, counts.filtered, counts.skipped) == (1, 1, 0)
    assert shop.stats().conserved


def test_one_message_of_a_key_is_in_flight() -> None:
    shop = shop_at_most_once()
    shop.push("a", 1, 2, 3)
    shop.push("b", 4)
    owner = shop.owner()
    assert owner.start_calls() == [1, 4]
    owner.finish(4)
    assert owner.start_calls() == [1]
    owner.finish(1)
    assert owner.start_calls() == [2]


def stop(owner: Owner) -> None:
    owner.machine.stopped = True


def pause(owner: Owner) -> None:
    owner.machine.paused = 7


def drain(owner: Owner) -> None:
    owner.machine.drain()


@pytest.mark.parametrize("end", [stop, pause, drain])
@pytest.mark.parametrize("failing", [False, True], ids=["storage works", "storage fails once"])
def test_what_is_acknowledged_is_called_before_an_orderly_end(end: Any, failing: bool) -> None:
    shop = shop_at_most_once(concurrency=3)
    for number in range(9):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    if failing:
        shop.backend.before = down
    owner.start_calls(at_most=1)
    end(owner)
    shop.backend.before = up
    while owner.start_calls():
        assert not owner.machine.drained
        finish_all(owner)
    owner.commit()
    called = {value for value, _ in owner.calls}
    assert called == stored_acks(shop, owner)
    assert len(called) == 3
    assert owner.machine.drained == (end is drain)
    again = shop.owner()
    again.run()
    again.leave()
    assert {value for value, _ in again.calls} == set(range(9)) - called
    assert (shop.counts().acked, shop.counts().early, shop.counts().skipped) == (9, 9, 0)


def test_a_commit_with_an_unknown_outcome_skips_what_it_may_have_acknowledged() -> None:
    shop = shop_at_most_once()
    shop.push("a", 1)
    owner = shop.owner()
    shop.backend.after = lambda transaction: unknown()
    assert owner.start_calls() == []
    assert owner.lost
    shop.backend.after = up
    again = shop.owner()
    again.run()
    again.leave()
    assert again.calls == []
    assert (shop.counts().skipped, shop.counts().acked) == (1, 1)


def test_what_an_earlier_guarantee_left_in_the_retry_queue_is_called_once_more() -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    before = shop.owner()
    before.run(lambda value: FAILED)
    before.leave()
    assert shop.queued(Queue.RQ) == [1, 2]
    shop.acking = Acking.BEFORE_CALL
    owner = shop.owner()
    shop.now += RETRY_S
    owner.run_until_idle(lambda value: FAILED)
    assert owner.calls == [(1, 2), (2, 1)]
    assert attempts(shop) == []
    again = shop.owner()
    shop.now += RETRY_S
    again.run()
    assert again.calls == []
    assert shop.stats().conserved


def test_what_was_in_flight_at_a_kill_of_an_earlier_guarantee_is_called_once_more() -> None:
    """It is suspect, but no later kill can be blamed on it again: it is acknowledged before."""
    shop = Shop(concurrency=2)
    for number in range(6):
        shop.push(f"k{number}", number)
    shop.owner().start_calls()
    second = shop.owner()
    second.start_calls()  # it ends during the call of a suspect that is alone
    shop.acking = Acking.BEFORE_CALL
    owner = shop.owner()
    owner.run()
    assert sorted(value for value, _ in owner.calls) == list(range(6))
    owner.leave()
    assert attempts(shop) == []
    assert shop.stats().conserved
    again = shop.owner()
    again.run()
    assert again.calls == []


def test_a_dead_letter_that_is_redelivered_is_acknowledged_after_its_call() -> None:
    shop = Shop(attempts=1)
    shop.push("a", 1)
    before = shop.owner()
    before.run(lambda value: FAILED)
    before.leave()
    shop.acking = Acking.BEFORE_CALL
    ask(shop, RequestAction.REDELIVER, key_target("a"))
    failing = shop.owner()
    failing.run(lambda value: FAILED)
    assert shop.stats().total.dead == 1
    ask(shop, RequestAction.REDELIVER, key_target("a"), id="r2")
    failing.read_requests()
    failing.run()
    total = shop.stats().total
    assert (total.dead, total.acked, shop.stats().conserved) == (0, 1, True)


def test_acknowledged_messages_behind_a_dead_letter_are_called_before_an_orderly_end() -> None:
    shop = Shop(attempts=1, concurrency=2)
    shop.push("dead", 1)
    before = shop.owner()
    before.run(lambda value: FAILED)
    before.leave()
    shop.acking = Acking.BEFORE_CALL
    ask(shop, RequestAction.REDELIVER, key_target("dead"))
    for number in (2, 3, 4):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    assert owner.start_calls(at_most=1) == [2]
    owner.advance()
    assert stored_acks(shop, owner) == {0, 1, 2}
    owner.machine.drain()
    finish_all(owner)
    while owner.start_calls():
        finish_all(owner)
    owner.commit()
    assert owner.machine.drained
    assert owner.calls == [(2, 1), (3, 1)]
