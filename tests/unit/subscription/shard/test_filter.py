"""Messages that do not match the filter are acknowledged, and no part of the order."""

from __future__ import annotations

import pytest

from tailrace.delivery.outcome import FILTERED, SUCCESS, CallOutcome
from tailrace.subscription.shard.queues import Queue
from tests.support.shards import FAILED, NAME, Shop

INDIA = {"country": "IN"}
ABROAD = {"country": "US"}


def shop_in_india() -> Shop:
    return Shop(filter="header.country == 'IN'")


def test_only_messages_that_match_are_called_and_the_others_are_acknowledged() -> None:
    shop = shop_in_india()
    shop.push("a", 1, headers=INDIA)
    shop.push("a", 2, 3, headers=ABROAD)
    shop.push("b", 4)
    shop.push("a", 5, headers=INDIA)
    owner = shop.owner()
    owner.run()
    assert owner.calls == [(1, 1), (5, 1)]
    assert owner.machine.filtering.filtered == 3
    assert owner.finished_reading()


def test_progress_advances_although_nothing_matches() -> None:
    shop = shop_in_india()
    for number in range(500):
        shop.push(f"k{number}", number, headers=ABROAD)
    owner = shop.owner()
    owner.advance()
    commit = owner.machine.start_commit()
    assert commit is not None
    assert [len(ranges) for ranges in commit.acks.values()] == [1]
    owner.machine.not_committed(commit)
    owner.commit()
    assert owner.finished_reading()
    assert owner.machine.filtering.filtered == 500
    again = shop.owner()
    again.run()
    assert (again.calls, again.machine.filtering.filtered) == ([], 0)


def test_a_message_that_does_not_match_waits_for_no_earlier_one_of_its_key() -> None:
    shop = shop_in_india()
    shop.push("a", 1, 2, headers=INDIA)
    owner = shop.owner()
    owner.run(lambda value: FAILED)
    shop.push("a", 3, headers=ABROAD)
    owner.machine.wake(owner.stored.streams(0).mq)
    owner.run(lambda value: FAILED)
    assert shop.queued(Queue.RQ) == [1, 2]
    assert owner.finished_reading()


def test_what_is_in_the_retry_queue_stays_when_the_filter_changes() -> None:
    shop = Shop()
    shop.push("a", 1, 2, headers=ABROAD)
    owner = shop.owner()
    owner.run(lambda value: FAILED)
    owner.leave()
    shop.filter = "header.country == 'IN'"
    after = shop.owner()
    after.run_until_idle(lambda value: SUCCESS)
    assert after.calls == [(1, 2), (2, 1)]


def test_attempts_of_a_message_that_does_not_match_any_more_are_removed() -> None:
    shop = Shop(concurrency=1)
    shop.push("a", 1, headers=ABROAD)
    shop.push("b", 2, headers=INDIA)
    shop.owner().start_calls()  # this worker ends during the call, and the next one too
    suspecting = shop.owner()
    suspecting.start_calls()
    assert attempts(shop)
    shop.filter = "header.country == 'IN'"
    owner = shop.owner()
    owner.run()
    assert owner.calls == [(2, 1)]
    assert attempts(shop) == []
    assert owner.finished_reading()


@pytest.mark.parametrize("failures", [0, 1])
def test_a_message_that_a_function_refuses_before_its_call_is_acknowledged(failures: int) -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    owner = shop.owner()
    outcomes: list[CallOutcome] = [FAILED] * failures + [FILTERED]
    owner.run_until_idle(lambda value: outcomes.pop(0) if value == 1 else SUCCESS)
    assert [value for value, _ in owner.calls] == [1] * failures + [1, 2]
    assert owner.machine.filtering.filtered == 1
    assert (owner.lag(Queue.RQ, "a"), attempts(shop)) == (0, [])
    assert owner.finished_reading()


def attempts(shop: Shop) -> list[bytes]:
    return [key for key, _ in shop.backend.table.scan(f"subscription-attempts/{NAME}")]
