"""A message that could not be called waits where it is, and no attempt is counted."""

from __future__ import annotations

import pytest

from tailrace.delivery.outcome import CallOutcome, OutcomeKind
from tailrace.subscription.shard.attempts import Begun, decode_attempts
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.request import RequestAction
from tests.support.letter_requests import ask, audited, key_target, nothing_is_left
from tests.support.shards import FAILED, NAME, REJECTED, RETRY_S, Owner, Shop, fails

LATER = CallOutcome(OutcomeKind.LATER, "an earlier call of its key still runs")


def marks(shop: Shop) -> list[Begun]:
    """Return what is stored about calls under way."""
    found = shop.backend.table.scan(f"subscription-attempts/{NAME}")
    return [decode_attempts(value).begun for _, value in found]


def postpone(owner: Owner, value: int, times: int = 10) -> None:
    """Let a message come to its turn again and again, and never be called."""
    for _ in range(times):
        assert owner.start_calls() == [value]
        owner.finish(value, LATER)
        assert owner.start_calls() == []
        owner.commit()
        assert owner.machine.due is not None
        owner.shop.now = owner.machine.due


def test_a_message_of_the_topic_stays_there_and_keeps_its_permit() -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    owner = shop.owner()
    postpone(owner, 1)
    assert shop.queued(Queue.RQ) == []
    assert [stream.permitted for stream in owner.machine.intake._streams.values()] == [{0, 1}]
    owner.run()
    assert {attempt for _, attempt in owner.calls} == {1}
    assert [value for value, _ in owner.calls][-2:] == [1, 2]
    assert owner.machine.counts.emitted == 2


def test_a_message_that_is_retried_stays_first_of_its_key_and_keeps_its_attempts() -> None:
    shop = Shop(attempts=3)
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.run(fails(1, times=1))
    shop.now += RETRY_S
    postpone(owner, 1)
    assert marks(shop) == [Begun.NO]
    owner.run()
    assert owner.calls[-2:] == [(1, 2), (2, 1)]
    assert marks(shop) == []


def test_a_suspect_stays_suspect_and_leaves_its_process_to_others() -> None:
    shop = Shop()
    shop.push("a", 1)
    shop.owner().start_calls()  # its worker ends
    shop.push("b", 2)
    owner = shop.owner()
    assert owner.start_calls() == [1]
    owner.finish(1, LATER)
    assert owner.start_calls() == [2]
    assert marks(shop) == [Begun.SHARED]
    owner.finish(2)
    owner.commit()
    shop.now += RETRY_S
    assert owner.start_calls() == [1]
    assert owner.in_flight[1].alone


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_dead_letter_that_is_redelivered_has_not_failed(attempts: int) -> None:
    shop = Shop()
    shop.push("a", 1)
    owner = shop.owner()
    owner.run(lambda value: REJECTED)
    ask(shop, RequestAction.REDELIVER, key_target("a"), attempts=attempts)
    owner.read_requests()
    postpone(owner, 1)
    for _ in range(attempts - 1):
        owner.start_calls()
        owner.finish(1, FAILED)
        shop.now += RETRY_S
    owner.run()
    assert audited(shop) == ["1 dead letter redelivered"]
    assert nothing_is_left(shop)


def test_a_message_that_waits_is_left_to_the_next_owner_without_a_trace() -> None:
    shop = Shop()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    owner.finish(1, LATER)
    owner.leave()
    owner = shop.owner()
    assert owner.start_calls() == [1]
    assert not owner.in_flight[1].alone
