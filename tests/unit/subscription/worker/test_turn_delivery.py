"""A delivery says that it is redelivered exactly if its handler may have been called before."""

from __future__ import annotations

from typing import Any

from tailrace.delivery.delivery import Delivery
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.worker.turn_delivery import delivery_of
from tests.support.letter_requests import ask, key_target
from tests.support.shards import REJECTED, RETRY_S, Owner, Shop, fails


def redelivered(owner: Owner) -> dict[int, bool]:
    """Call everything that can be called now. Returns for each value if it is redelivered."""
    found: dict[int, bool] = {}
    while owner.start_calls():
        for value, turn in list(owner.in_flight.items()):
            found[value] = delivery_of(turn).redelivered
            owner.finish(value)
    return found


def test_what_may_have_been_in_flight_at_a_kill_is_redelivered_and_nothing_else() -> None:
    shop = Shop(concurrency=1)
    for number in range(10):
        shop.push(f"k{number}", number)
    shop.owner().start_calls()  # its worker is killed: four calls were permitted
    found = redelivered(shop.owner())
    assert found == {number: number < 4 for number in range(10)}


def test_a_success_that_was_not_stored_is_redelivered() -> None:
    shop = Shop()
    shop.push("a", 1)
    owner = shop.owner()
    owner.start_calls()
    owner.finish(1)  # its worker is killed before it stores that
    assert redelivered(shop.owner()) == {1: True}


def test_a_follower_of_a_failed_message_is_not_redelivered() -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.run(fails(1))
    shop.now += RETRY_S
    assert redelivered(owner) == {1: True, 2: False}


def test_a_retried_message_that_was_in_flight_at_a_kill_is_redelivered() -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.run(fails(1))
    shop.now += RETRY_S
    owner.start_calls()
    owner.finish(1)
    owner.start_calls()  # the follower, which was not called before
    assert redelivered(shop.owner())[2]


def test_a_dead_letter_is_redelivered_and_its_follower_is_not() -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.run(lambda value: REJECTED)
    ask(shop, RequestAction.REDELIVER, key_target("a"))
    owner.read_requests()
    assert redelivered(owner) == {1: True, 2: False}


def test_a_message_of_a_call_with_several_that_failed_is_redelivered() -> None:
    shop = Shop()
    for number in range(2):
        shop.push(f"k{number}", number)
    owner = shop.owner()
    owner.start_calls()
    owner.machine.split(list(owner.in_flight.values()))
    owner.in_flight.clear()
    assert redelivered(owner) == {0: True, 1: True}


def test_a_redelivered_message_is_as_it_was_pushed() -> None:
    shop = Shop()
    shop.push("a", 1, headers={"country": "IN"})
    first = shop.owner()
    first.start_calls()
    again = shop.owner()

    def fields(delivery: Delivery[Any]) -> tuple[Any, ...]:
        return delivery.id, delivery.key, delivery.data, delivery.headers, delivery.timestamp

    before = delivery_of(first.in_flight[1])
    again.start_calls()
    after = delivery_of(again.in_flight[1])
    assert (before.redelivered, after.redelivered) == (False, True)
    assert fields(before) == fields(after)
