"""During a pause nothing is called, and the owner says when nothing is in flight any more."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Transaction
from tailrace.clock import SystemClock
from tailrace.errors import BackendUnavailable
from tailrace.queue.draining import await_quiet, busy_shards
from tailrace.subscription.store.pause import pause, pause_version, resume
from tests.support.shards import FAILED, NAME, RETRY_S, Owner, Shop, grant
from tests.support.waiting import in_thread, until


def down(transaction: Transaction) -> None:
    raise BackendUnavailable("the storage does not answer", "try again")


def up(transaction: Transaction) -> None:
    """Let every commit pass."""


def pause_shop(shop: Shop, *owners: Owner) -> int:
    """Pause, and let the owners know."""
    pause(shop.backend, NAME, "rest", "ann", 0)
    version = pause_version(shop.backend, NAME)
    for owner in owners:
        owner.machine.paused = version
    return version


def permits(shop: Shop) -> list[bytes]:
    return [key for key, _ in shop.backend.table.scan(f"subscription-permits/{NAME}")]


def attempts(shop: Shop) -> list[bytes]:
    return [key for key, _ in shop.backend.table.scan(f"subscription-attempts/{NAME}")]


def shop_in_flight() -> tuple[Shop, Owner]:
    """A shop with two calls in flight, more that are permitted, and one that waits in RQ."""
    shop = Shop(concurrency=2)
    for number in range(30):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    assert owner.start_calls() == [0, 1]
    return shop, owner


def test_a_pause_is_quiet_once_the_calls_in_flight_have_ended() -> None:
    shop, owner = shop_in_flight()
    assert permits(shop)
    version = pause_shop(shop, owner)
    assert owner.start_calls() == [0, 1], "no further one"
    owner.commit()
    assert shop.counts().quiet < version
    owner.finish(0)
    owner.advance()
    owner.commit()
    assert shop.counts().quiet < version
    owner.finish(1)
    assert owner.machine.commit_due
    owner.advance()
    assert shop.counts().quiet == version
    assert permits(shop) == attempts(shop) == []
    assert not owner.machine.unsaved, "a driver would store nothing again and again"


def test_a_message_that_waits_in_the_retry_queue_is_not_called_in_a_pause() -> None:
    shop, owner = shop_in_flight()
    owner.finish(0, FAILED)
    owner.finish(1)
    pause_shop(shop, owner)
    owner.advance()
    shop.now += RETRY_S
    assert owner.start_calls() == []
    assert attempts(shop) == [b"orders/0.0@00000000000000000000+r0"], "its failed attempt"
    owner.machine.paused = 0
    owner.run()
    assert (0, 2) in owner.calls


def test_an_idle_shard_is_quiet_at_once() -> None:
    shop = Shop()
    owner = shop.owner()
    owner.advance()
    version = pause_shop(shop, owner)
    owner.advance()
    assert shop.counts().quiet == version


def test_calls_after_a_pause_are_permitted_anew() -> None:
    shop, owner = shop_in_flight()
    pause_shop(shop, owner)
    owner.finish(0)
    owner.finish(1)
    owner.advance()
    assert permits(shop) == []
    owner.machine.paused = 0
    assert owner.start_calls() == [2, 3]
    suspecting = shop.owner()
    suspecting.start_calls()
    assert suspecting.machine.alone is not None, "the calls in flight at the kill are suspect"


@pytest.mark.parametrize("resumed", [False, True], ids=["paused", "resumed meanwhile"])
def test_a_pause_whose_commit_failed_withdraws_its_permits_later(resumed: bool) -> None:
    shop, owner = shop_in_flight()
    version = pause_shop(shop, owner)
    owner.finish(0)
    owner.finish(1)
    shop.backend.before = down
    owner.advance()
    owner.commit()
    assert shop.counts().quiet == 0
    if resumed:
        owner.machine.paused = 0
    shop.backend.before = up
    owner.advance()
    assert (shop.counts().quiet == version) is not resumed
    assert bool(permits(shop)) is resumed
    owner.machine.paused = 0
    owner.run()
    assert sorted(value for value, _ in owner.calls) == list(range(30))


def test_nothing_is_called_while_the_commit_of_a_pause_is_under_way() -> None:
    """Its permits are withdrawn by that commit: a kill would not be blamed on the call."""
    shop = Shop(concurrency=2)
    for number in range(30):
        shop.push(f"k{number % 3}", number)
    owner = shop.owner()
    assert owner.start_calls() == [0, 1]
    pause_shop(shop, owner)
    owner.finish(0)
    owner.finish(1)
    commit = owner.machine.start_commit()
    assert commit is not None
    assert commit.quiet
    owner.machine.paused = 0
    owner.step()
    assert owner.machine.take() is None
    assert not owner.machine.can_call
    owner.machine.committed(commit, [])
    assert owner.machine.take() is None, "they wait for another commit"
    owner.run()
    assert len(owner.calls) == 30


def test_a_suspect_that_is_about_to_be_called_waits_for_the_end_of_the_pause() -> None:
    shop = Shop(concurrency=1)
    shop.push("a", 1)
    shop.push("b", 2)
    shop.owner().start_calls()
    owner = shop.owner()
    owner.advance()
    owner.machine.begin_alone()
    version = pause_shop(shop, owner)
    owner.advance()
    assert shop.counts().quiet == version
    assert owner.machine.alone is None
    owner.machine.paused = 0
    owner.run()
    assert sorted(value for value, _ in owner.calls) == [1, 2]


def test_a_suspect_whose_outcome_is_not_stored_keeps_the_worker_over_a_pause() -> None:
    shop = Shop(concurrency=1)
    shop.push("a", 1)
    shop.push("b", 2)
    shop.push("c", 3)
    shop.owner().start_calls()
    owner = shop.owner()
    assert owner.start_calls() == [1]
    assert owner.machine.alone is not None
    pause_shop(shop, owner)
    owner.finish(1)
    shop.backend.before = down
    owner.advance()
    owner.machine.paused = 0
    assert owner.start_calls() == []
    shop.backend.before = up
    owner.run()
    assert sorted(value for value, _ in owner.calls) == [1, 2, 3]


def test_an_owner_that_takes_over_in_a_pause_calls_nothing() -> None:
    shop, _ = shop_in_flight()
    version = pause_shop(shop)
    again = shop.owner()
    again.machine.paused = version
    assert again.start_calls() == []
    assert shop.counts().quiet == version
    assert permits(shop), "what was in flight stays suspect"
    hold = grant(shop.backend, "w0", 0)
    assert shop.stats().shards[0].in_flight == 0
    hold.release()
    again.machine.paused = 0
    again.start_calls()
    assert again.machine.alone is not None


def test_a_drain_waits_for_the_owner_of_every_shard() -> None:
    shop = Shop(shards=2, partitions=2)
    owners = [shop.owner(shard) for shard in range(2)]
    version = pause_shop(shop)
    holds = [grant(shop.backend, f"w{shard}", shard) for shard in range(2)]
    assert busy_shards(shop.backend, NAME, version) == [0, 1]
    owners[0].machine.paused = version
    owners[0].advance()
    assert busy_shards(shop.backend, NAME, version) == [1]
    assert not await_quiet(shop.backend, NAME, SystemClock(), 0.05)
    holds[1].release()
    assert await_quiet(shop.backend, NAME, SystemClock(), 30), "a shard without an owner"
    holds[0].release()


def test_a_later_pause_is_not_quiet_because_an_earlier_one_was() -> None:
    shop, owner = shop_in_flight()
    hold = grant(shop.backend, "w0", 0)
    first = pause_shop(shop, owner)
    owner.finish(0)
    owner.finish(1)
    owner.advance()
    assert busy_shards(shop.backend, NAME, first) == []
    resume(shop.backend, NAME)
    owner.machine.paused = 0
    owner.start_calls()
    second = pause_shop(shop, owner)
    assert busy_shards(shop.backend, NAME, second) == [0]
    hold.release()


def test_a_drain_ends_when_the_queue_is_played() -> None:
    shop, _ = shop_in_flight()
    hold = grant(shop.backend, "w0", 0)
    pause_shop(shop)
    answers: list[bool] = []
    thread = in_thread(lambda: answers.append(await_quiet(shop.backend, NAME, SystemClock(), None)))
    assert not answers
    resume(shop.backend, NAME)
    until(lambda: answers == [False])
    thread.join()
    hold.release()
