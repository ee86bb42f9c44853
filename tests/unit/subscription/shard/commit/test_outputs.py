"""What a handler pushes is stored in the commit that acknowledges its message, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Transaction
from tailrace.delivery.outcome import FILTERED, SUCCESS, CallOutcome
from tailrace.errors import BackendUnavailable, Error, InvalidValue, MessageTooLarge, UnknownTopic
from tailrace.log.record import Record
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.worker.outputs import OUTPUT_BYTES_MAX
from tests.support.faulty_backend import once, unknown
from tests.support.letter_requests import ask, key_target
from tests.support.shards import FAILED, REJECTED, RETRY_S, Owner, Shop


def down(transaction: Transaction) -> None:
    raise BackendUnavailable("the storage does not answer", "try again")


def up(transaction: Transaction) -> None:
    """Let every commit pass."""


def shop_with_output(**options: Any) -> Shop:
    shop = Shop(**options)
    shop.hub.create_topic("done", partitions=2)
    return shop


def redeliver(shop: Shop, key: str) -> None:
    ask(shop, RequestAction.REDELIVER, key_target(key))


def copy(owner: Owner, value: int, *, key: str = "out", times: int = 1) -> None:
    """Push the value of a call that is under way, and of further ones a thousand more each."""
    for number in range(times):
        owner.transaction(value).push("done", value + 1000 * number, key=key)


def test_an_output_and_the_acknowledgement_are_one_commit() -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    copy(owner, 1)
    assert shop.pushed("done") == []
    seen: list[Transaction] = []
    shop.backend.before = seen.append
    owner.finish(1)
    assert owner.machine.commit_due, "others wait for it"
    assert owner.commit()
    (transaction,) = seen
    assert [partition.topic for partition, _ in transaction.appends] == ["done"]
    assert [key.table for key in transaction.table if key.table.startswith("ledger")]
    assert shop.pushed("done") == [1]
    assert owner.finished_reading()


@pytest.mark.parametrize("outcome", [FAILED, REJECTED, FILTERED])
def test_the_outputs_of_a_call_without_success_are_dropped(outcome: CallOutcome) -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    copy(owner, 1)
    owner.finish(1, outcome)
    owner.advance()
    owner.commit()
    assert shop.pushed("done") == []


def test_the_attempt_that_succeeds_stores_its_own_outputs_only() -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    copy(owner, 1, times=3)
    owner.finish(1, FAILED)
    shop.now += RETRY_S
    owner.start_calls()
    copy(owner, 1)
    owner.finish(1)
    owner.advance()
    assert shop.pushed("done") == [1]


def test_what_could_not_be_stored_stays_with_its_acknowledgement_and_goes_first() -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    shop.push("b", 2)
    owner = shop.owner()
    owner.start_calls()
    copy(owner, 1, times=2)
    shop.backend.before = down
    owner.finish(1)
    assert not owner.commit()
    assert shop.pushed("done") == []
    copy(owner, 2)
    owner.finish(2)
    assert not owner.commit()
    shop.backend.before = up
    assert owner.commit()
    assert shop.pushed("done") == [1, 1001, 2]
    assert shop.counts().acked == 2


def test_the_outputs_of_a_key_have_the_order_of_its_messages() -> None:
    shop = shop_with_output(concurrency=8)
    keys = [f"k{number % 5}" for number in range(60)]
    for number, key in enumerate(keys):
        shop.push(key, number)
    owner = shop.owner()
    while owner.start_calls():
        for value in list(owner.in_flight):
            copy(owner, value, key=keys[value], times=2)
            owner.finish(value)
    owner.commit()
    stored = shop.pushed("done")
    for first in range(5):
        expected = [n + more for n in range(first, 60, 5) for more in (0, 1000)]
        assert [value for value in stored if value % 1000 % 5 == first] == expected


def test_a_topic_that_was_scaled_meanwhile_is_followed() -> None:
    shop = shop_with_output()
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.start_calls()
    copy(owner, 1)
    owner.finish(1)
    owner.advance()
    owner.start_calls()
    copy(owner, 2)
    shop.hub.topic("done").scale(6)
    owner.finish(2)
    owner.advance()
    assert not owner.lost
    assert shop.pushed("done") == [1, 2]
    assert owner.finished_reading()


def test_outputs_to_several_topics_and_moves_are_one_commit() -> None:
    shop = shop_with_output()
    shop.hub.create_topic("also")
    shop.push("a", 1)
    shop.push("b", 2)
    owner = shop.owner()
    owner.start_calls()
    copy(owner, 1)
    owner.transaction(1).push(shop.hub.topic("also"), 7)
    owner.finish(1)
    owner.finish(2, FAILED)
    seen: list[Transaction] = []
    shop.backend.before = seen.append
    owner.commit()
    assert len(seen) == 1
    assert (shop.pushed("done"), shop.pushed("also"), shop.queued(Queue.RQ)) == ([1], [7], [2])
    shop.now += RETRY_S
    assert owner.start_calls() == [2], "its place in the retry queue is known"


def test_a_topic_that_was_deleted_loses_the_shard_and_then_fails_the_handler() -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    copy(owner, 1)
    shop.hub.delete_topic("done")
    owner.finish(1)
    owner.advance()
    assert owner.lost
    again = shop.owner()
    again.start_calls()
    assert again.calls == [(1, 1)], "it is not acknowledged"
    with pytest.raises(UnknownTopic):
        copy(again, 1)


def test_a_topic_that_was_created_again_is_found_again() -> None:
    shop = shop_with_output()
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.start_calls()
    copy(owner, 1)
    owner.finish(1)
    owner.advance()
    shop.hub.delete_topic("done")
    shop.hub.create_topic("done", partitions=1)
    owner.start_calls()
    copy(owner, 2)
    owner.finish(2)
    owner.advance()
    assert owner.lost, "a late push must not land in another topic"
    owner.topics.forget()
    again = shop.owner()
    again.start_calls()
    copy(again, 2)
    again.finish(2)
    again.advance()
    assert shop.pushed("done") == [2]


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_a_commit_with_an_unknown_outcome_stores_no_output_twice(stored: bool) -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    copy(owner, 1)
    owner.finish(1)
    if stored:
        shop.backend.after = once(unknown)
    else:
        shop.backend.before = once(unknown)
    owner.advance()
    assert owner.lost
    again = shop.owner()
    for value in again.start_calls():
        copy(again, value)
        again.finish(value)
    again.commit()
    assert shop.pushed("done") == [1]
    assert shop.counts().acked == 1


def test_nothing_is_pushed_once_the_call_has_ended() -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    transaction = owner.transaction(1)
    transaction.push("done", 1)
    transaction.end()
    with pytest.raises(Error, match="the call has ended"):
        transaction.push("done", 2)
    owner.finish(1)
    owner.advance()
    assert shop.pushed("done") == [1]


def test_what_one_call_pushes_is_bounded() -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    transaction = owner.transaction(1)
    for _ in range(16):
        transaction.push("done", "x" * (OUTPUT_BYTES_MAX // 16 - 1000))
    with pytest.raises(MessageTooLarge, match="what one call pushes"):
        transaction.push("done", "x" * 20_000)


def test_headers_count_and_a_message_alone_may_be_larger() -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    transaction, large = owner.transaction(1), bytes(OUTPUT_BYTES_MAX)
    record = Record(0, 1, 0, 0, b"a", {"trace": large}, b"1")
    transaction.push_record("done", record)
    with pytest.raises(MessageTooLarge, match="what one call pushes"):
        transaction.push("done", 2)


def test_queues_of_subscriptions_and_topics_of_other_hubs_are_refused() -> None:
    shop, other = shop_with_output(), shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    transaction = owner.transaction(1)
    with pytest.raises(InvalidValue):
        transaction.push(other.hub.topic("done"), 1)
    with pytest.raises(InvalidValue):
        transaction.push(7, 1)  # type: ignore[arg-type]
    with pytest.raises(Error):
        transaction.push(owner.targets.rq.partitions[0].topic, 1)
    owner.finish(1)
    owner.commit()
    assert shop.pushed("done") == other.pushed("done") == []


def test_a_topic_is_encoded_as_the_handler_gives_it() -> None:
    shop = shop_with_output()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    transaction = owner.transaction(1)
    transaction.push("done", 1)
    with pytest.raises(Error):
        transaction.push(shop.hub.topic("done", int), "not a number")


def test_no_more_is_called_while_too_much_waits_to_be_pushed() -> None:
    shop = shop_with_output(concurrency=2, append_bytes_max=2000)
    for number in range(20):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    shop_calls = owner.start_calls()
    shop.backend.before = down
    for value in shop_calls:
        owner.transaction(value).push("done", "x" * 1500)
        owner.finish(value)
    owner.advance()
    assert owner.machine.take() is None
    assert not owner.machine.can_call
    shop.backend.before = up
    owner.run()
    assert len(owner.calls) == 20


def test_a_dead_letter_that_is_redelivered_pushes_with_its_acknowledgement() -> None:
    shop = shop_with_output(attempts=1)
    shop.push("a", 1)
    owner = shop.owner()
    owner.run(lambda value: FAILED)
    redeliver(shop, "a")
    owner.read_requests()
    owner.start_calls()
    copy(owner, 1)
    owner.finish(1)
    owner.advance()
    assert shop.pushed("done") == [1]
    owner.commit()
    total = shop.stats().total
    assert (total.acked, total.dead, shop.stats().conserved) == (1, 0, True)


def test_a_redelivery_that_fails_pushes_nothing() -> None:
    shop = shop_with_output(attempts=1)
    shop.push("a", 1)
    owner = shop.owner()
    owner.run(lambda value: FAILED)
    redeliver(shop, "a")
    owner.read_requests()
    owner.start_calls()
    copy(owner, 1)
    owner.finish(1, FAILED)
    owner.advance()
    owner.commit()
    assert shop.pushed("done") == []
    assert shop.stats().total.dead == 1


def test_outputs_and_the_end_of_a_request_find_the_place_of_a_move() -> None:
    """The audit line, the outputs and the moved message are appended by one commit."""
    shop = shop_with_output(attempts=2)
    shop.push("dead", 1)
    owner = shop.owner()
    owner.run_until_idle(lambda value: FAILED)
    shop.push("b", 2)
    owner.machine.wake(owner.stored.streams(0).mq)
    redeliver(shop, "dead")
    owner.read_requests()
    assert owner.start_calls() == [1, 2]
    copy(owner, 1)
    owner.finish(2, FAILED)
    owner.finish(1, SUCCESS)
    owner.commit()
    shop.now += RETRY_S
    assert owner.start_calls() == [2]
    owner.finish(2)
    owner.commit()
    assert shop.pushed("done") == [1]
    assert shop.stats().conserved
