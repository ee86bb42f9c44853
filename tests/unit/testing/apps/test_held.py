"""What waits in a run: retries, dead letters, and requests on them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tailrace import Delivery, InvalidValue
from tailrace.testing import AppRun, run
from tests.support.app_runs import app_of, succeeded


class Order(msgspec.Struct):
    number: int


def mail(order: Delivery[Order]) -> None:
    assert order.value


def values(held: list[Any]) -> list[int]:
    return [each.value.number for each in held]


def push(shop: AppRun, key: str, *numbers: int) -> list[str]:
    """Push orders, and return their ids."""
    return [shop.push("orders", Order(each), key=key, headers={"n": "1"}).id for each in numbers]


def test_a_message_that_is_retried_waits_with_its_followers() -> None:
    with run(app_of(mail)) as shop:
        shop.endpoint("mailer").fails(error=TimeoutError("no answer"), key="c7")
        ids = push(shop, "c7", 1, 2)
        push(shop, "c8", 3)
        assert shop.pending("mailer") == 3
        shop.advance("1s")
        first, follower = shop.retrying("mailer")
        assert [first.id, follower.id] == ids
        assert (first.key, first.value, first.headers) == ("c7", Order(1), {"n": b"1"})
        assert (first.attempts, first.error) == (1, "TimeoutError: no answer")
        assert first.due is not None
        assert timedelta(minutes=4) < first.due - shop.now < timedelta(minutes=10)
        assert (follower.value, follower.attempts, follower.due) == (Order(2), 0, None)
        assert shop.pending("mailer") == 2
        shop.until_idle()
        assert shop.retrying("mailer") == []
        assert shop.pending("mailer") == 0
        assert [each.number for each in succeeded(shop)] == [3, 1, 2]


def test_a_success_is_not_shown_as_waiting() -> None:
    with run(app_of(mail)) as shop:
        shop.endpoint("mailer").fails()
        push(shop, "c7", 1)
        shop.step()
        assert values(shop.retrying("mailer")) == [1]
        shop.step()
        assert shop.retrying("mailer") == []


def test_a_dead_letter_blocks_its_key_until_it_is_redelivered_in_order() -> None:
    with run(app_of(mail)) as shop:
        shop.endpoint("mailer").fails(times=3, key="c7")
        ids = push(shop, "c7", 1, 2)
        shop.until_idle()
        dead, follower = shop.dead_letters("mailer")
        assert [dead.id, follower.id] == ids
        assert (dead.attempts, dead.due, follower.attempts) == (3, None, 0)
        assert follower.error == "an earlier message of its key failed"
        push(shop, "c7", 3)
        shop.until_idle()
        assert values(shop.dead_letters("mailer")) == [1, 2, 3]
        assert shop.redeliver("mailer", key="c7").letters == 3
        push(shop, "c7", 4)
        shop.until_idle()
        assert [each.number for each in succeeded(shop)] == [1, 2, 3, 4]
        assert shop.dead_letters("mailer") == []


def test_under_continue_later_messages_of_the_key_are_delivered() -> None:
    with run(app_of(mail, on_dead_letter="continue")) as shop:
        shop.endpoint("mailer").rejects("no", key="c7")
        push(shop, "c7", 1, 2)
        shop.until_idle()
        assert values(shop.dead_letters("mailer")) == [1]
        assert [each.number for each in succeeded(shop)] == [2]
        shop.redeliver("mailer", all=True)
        shop.until_idle()
        assert shop.dead_letters("mailer") == []
        assert [each.number for each in succeeded(shop)] == [2, 1]


def test_a_discarded_dead_letter_is_gone_and_its_followers_can_be_redelivered() -> None:
    with run(app_of(mail)) as shop:
        shop.endpoint("mailer").rejects("no", key="c7")
        first, second = push(shop, "c7", 1, 2)
        shop.until_idle()
        with pytest.raises(InvalidValue, match="behind other dead letters"):
            shop.redeliver("mailer", id=second)
        assert shop.discard("mailer", id=first).letters == 1
        shop.until_idle()
        assert values(shop.dead_letters("mailer")) == [2]
        assert shop.redeliver("mailer", id=second).letters == 1
        shop.until_idle()
        assert [each.number for each in succeeded(shop)] == [2]


def test_requests_are_carried_out_in_the_order_in_which_they_were_made() -> None:
    for seed in range(8):
        with run(app_of(mail), seed=seed) as shop:
            shop.endpoint("mailer").rejects("no", times=2, key="c7")
            first, _ = push(shop, "c7", 1, 2)
            shop.until_idle()
            shop.discard("mailer", id=first)
            shop.redeliver("mailer", key="c7")
            shop.endpoint("mailer").recovers()
            shop.until_idle()
            assert [each.number for each in succeeded(shop)] == [2]


def test_a_redelivery_that_fails_leaves_the_dead_letter_where_it_was() -> None:
    with run(app_of(mail)) as shop:
        shop.endpoint("mailer").rejects("no").fails(error=TimeoutError("still no answer"))
        push(shop, "c7", 1)
        shop.until_idle()
        shop.redeliver("mailer", key="c7")
        shop.until_idle()
        [dead] = shop.dead_letters("mailer")
        assert (dead.value, dead.error) == (Order(1), "TimeoutError: still no answer")


def test_a_request_for_what_is_not_there_is_refused() -> None:
    with run(app_of(mail)) as shop, pytest.raises(InvalidValue, match="a key with dead letters"):
        shop.redeliver("mailer", key="c7")


def test_a_dead_letter_that_cannot_be_decoded_has_no_value() -> None:
    with run(app_of(mail)) as shop:
        shop.push("orders", {"number": "one"}, key="c7")
        shop.until_idle()
        [dead] = shop.dead_letters("mailer")
        assert (dead.value, dead.key) == (None, "c7")
        assert "number" in dead.error
