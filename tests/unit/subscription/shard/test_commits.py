"""A move is one transaction: appended and acknowledged, or neither."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Transaction
from tailrace.delivery.outcome import SUCCESS
from tailrace.errors import BackendUnavailable
from tailrace.subscription.shard.queues import Queue
from tailrace.topic.ledger import Progress
from tests.support.faulty_backend import once, unknown
from tests.support.shards import FAILED, NAME, RETRY_S, Owner, Shop, fails


def down(transaction: Transaction) -> None:
    raise BackendUnavailable("the storage does not answer", "try again")


def up(transaction: Transaction) -> None:
    """Let every commit pass."""


def acknowledged(owner: Owner, offset: int = 0) -> bool:
    """True if the stored ledger has an offset of the first partition of the topic."""
    main = owner.stored.streams(0).mq[0]
    stored = Progress.load(owner.backend.table, f"subscription:{NAME}", main)
    assert owner.machine.ledgers.stored[main].acked(offset) == stored.acked(offset)
    return stored.acked(offset)


def test_what_could_not_be_stored_is_acknowledged_nowhere_and_goes_first() -> None:
    shop = Shop()
    shop.push("a", 0, 1)
    shop.push("b", 2)
    owner = shop.owner()
    assert owner.start_calls() == [0, 2]
    shop.backend.before = down
    owner.finish(0, FAILED)
    owner.finish(2)
    owner.advance()
    owner.commit()
    assert not acknowledged(owner, 0)
    assert not acknowledged(owner, 2)
    assert shop.queued(Queue.RQ) == []
    shop.backend.before = up
    assert owner.commit()
    assert acknowledged(owner, 0)
    assert acknowledged(owner, 2)
    assert shop.queued(Queue.RQ) == [0, 1]


def test_no_later_commit_acknowledges_what_was_not_moved() -> None:
    """A commit that fails is followed by one that has more: never by one that has less."""
    shop = Shop(concurrency=2)
    shop.push("a", 0)
    shop.push("b", 1)
    owner = shop.owner()
    owner.start_calls()
    shop.backend.before = down
    owner.finish(0, FAILED)
    owner.commit()
    owner.finish(1)
    seen: list[Transaction] = []
    shop.backend.before = seen.append
    owner.commit()
    assert [len(transaction.appends) for transaction in seen] == [1]


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_a_commit_with_an_unknown_outcome_stores_no_message_twice(stored: bool) -> None:
    shop = Shop(attempts=2)
    shop.push("a", 0, 1)
    owner = shop.owner()
    owner.start_calls()
    owner.finish(0, FAILED)
    if stored:
        shop.backend.after = once(unknown)
    else:
        shop.backend.before = once(unknown)
    owner.advance()
    assert owner.lost
    again = shop.owner()
    again.run_until_idle(fails(0))
    assert shop.queued(Queue.RQ) == [0, 1]
    assert shop.queued(Queue.DLQ) == [0, 1]


def test_an_outage_under_failures_is_bounded() -> None:
    shop = Shop(concurrency=4)
    for number in range(3000):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    owner.start_calls()
    shop.backend.before = down
    for _ in range(50):
        for value in list(owner.in_flight):
            owner.finish(value, FAILED)
        owner.start_calls()
    bound = 4 * shop.concurrency + 2 * shop.concurrency
    assert len(owner.calls) <= bound
    assert not any(acknowledged(owner, offset) for offset in range(bound))
    shop.backend.before = up
    owner.run_until_idle(lambda value: SUCCESS)
    assert {value for value, _ in owner.calls} == set(range(3000))


def test_followers_wait_when_too_many_messages_wait_to_be_moved() -> None:
    shop = Shop()
    shop.push("a", *range(3000))
    owner = shop.owner()
    assert owner.start_calls() == [0]
    shop.backend.before = down
    owner.finish(0, FAILED)
    owner.advance()
    waiting = owner.machine._outbox.moves
    assert 1 < waiting <= owner.machine.options.moves_max
    shop.backend.before = up
    owner.run_until_idle(lambda value: SUCCESS)
    assert shop.queued(Queue.RQ) == list(range(3000))
    assert [value for value, _ in owner.calls] == [0, *range(3000)]


def test_the_size_of_what_waits_to_be_moved_is_bounded_too() -> None:
    shop = Shop(append_bytes_max=2000)
    shop.push("a", *range(500))
    owner = shop.owner()
    assert owner.start_calls() == [0]
    shop.backend.before = down
    owner.finish(0, FAILED)
    owner.advance()
    waiting = owner.machine._outbox.moves
    assert 1 < waiting < 200
    owner.commit()
    owner.advance()
    assert owner.machine._outbox.moves == waiting
    shop.backend.before = up
    owner.run_until_idle(lambda value: SUCCESS)
    assert shop.queued(Queue.RQ) == list(range(500))


def test_a_success_is_stored_with_everything_else_that_is_ready() -> None:
    shop = Shop()
    for number in range(4):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    owner.start_calls()
    owner.finish(0)
    owner.finish(3)
    waits = [owner.machine.commit_due, owner.machine.unsaved]
    owner.finish(1, FAILED)
    assert [*waits, owner.machine.commit_due] == [False, True, True]
    owner.commit()
    assert [acknowledged(owner, offset) for offset in range(4)] == [True, True, False, True]


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_a_crash_after_a_success_from_rq_and_one_from_mq_keeps_the_order(stored: bool) -> None:
    shop = Shop()
    shop.push("a", 1)
    owner = shop.owner()
    owner.run(fails(1))
    shop.now += RETRY_S
    assert owner.start_calls() == [1]
    owner.finish(1)
    shop.push("a", 2)
    owner.machine.wake(owner.stored.streams(0).mq)
    assert owner.start_calls() == [2]
    owner.finish(2)
    if stored:
        owner.commit()
    again = shop.owner()
    again.run()
    # The commit that permitted the call of 2 has stored the success of 1.
    assert [value for value, _ in again.calls] == ([] if stored else [2])
    assert again.lag(Queue.RQ, "a") == 0


def test_a_topic_that_is_scaled_moves_its_failures_to_the_new_queue_in_order() -> None:
    shop = Shop(partitions=4, shards=4, attempts=3)
    keys = [f"k{number}" for number in range(40)]
    for number, key in enumerate(keys):
        shop.push(key, number)
    owners = [shop.owner(shard) for shard in range(4)]
    for owner in owners:
        owner.run(lambda value: FAILED)
    shop.topic.scale(12)
    for number, key in enumerate(keys):
        shop.push(key, 100 + number)
    for owner in owners:
        owner.reopen()
        owner.machine.wake(owner.stored.streams(owner.shard).mq)
    while any(owner.machine.due is not None for owner in owners):
        shop.now += RETRY_S
        for owner in owners:
            owner.run_until_idle(fails(*range(3), times=1))
    successes = [value for owner in owners for value, _ in owner.calls]
    for number in range(40):
        assert successes.index(100 + number) > successes.index(number)
    assert sorted(set(successes)) == [*range(40), *range(100, 140)]
    assert max(part.storage for part in owners[0].stored.streams(0).rq) == 1


def test_no_attempt_is_due_while_too_many_moves_wait_for_their_commit() -> None:
    """A driver that sleeps until something is due would not sleep at all."""
    shop = Shop(append_bytes_max=2000)
    shop.push("a", 0)
    shop.push("b", *range(1, 500))
    owner = shop.owner()
    assert owner.start_calls() == [0, 1]
    owner.finish(0, FAILED)
    owner.advance()
    shop.backend.before = down
    owner.finish(1, FAILED)
    owner.advance()
    assert owner.machine.due is None
    shop.now = RETRY_S
    owner.advance()
    assert owner.machine.due is None
    shop.backend.before = up
    owner.run_until_idle(lambda value: SUCCESS)
    assert [value for value, _ in owner.calls[2:]] == [0, *range(1, 500)]
