"""The dead letters of a subscription: listed, shown, redelivered and discarded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tailrace.delivery.outcome import SUCCESS
from tailrace.errors import InvalidValue
from tailrace.hub.dead_letters import DeadLetters
from tailrace.hub.hub import Hub
from tailrace.operations.audit import read_audit
from tests.support.shards import NAME, REJECTED, Shop


@pytest.fixture
def shop() -> Shop:
    """Key a has the dead letter 1, key b the dead letter 3, and 2 is behind that of a."""
    shop = Shop()
    shop.topic.push(1, key="a", headers={"country": "IN"})
    shop.push("a", 2)
    shop.push("b", 3)
    shop.owner().run(lambda value: SUCCESS if value == 2 else REJECTED)
    return shop


def letters_of(shop: Shop) -> DeadLetters:
    return Hub.from_backend(shop.backend).subscription(NAME).dead_letters


def test_letters_are_listed_with_their_messages_as_they_were_pushed(shop: Shop) -> None:
    letters = letters_of(shop).list()
    assert len(letters_of(shop)) == len(letters) == 3
    first, _, follower = letters
    assert [letter.message.value for letter in letters] == [1, 3, 2]
    assert (first.key, first.message.id) == ("a", "orders/0.0@0")
    assert first.message.headers == {"country": b"IN"}
    assert first.id == "tailrace.dead-letter-queue.crm/0.0@0"
    assert (first.error, first.attempts) == ("Reject: negative", 1)
    assert first.failed == first.since == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (follower.attempts, follower.failed) == (0, None)
    assert follower.error == "an earlier message of its key failed"
    assert [letter.id for letter in letters_of(shop).list(2)] == [each.id for each in letters[:2]]


def test_a_letter_is_shown_by_either_position(shop: Shop) -> None:
    letters = letters_of(shop)
    shown = letters.show("orders/0.0@2")
    assert shown.message.value == 3
    assert letters.show(shown.id).message.id == shown.message.id == "orders/0.0@2"
    assert letters.show(shown.id, type=float).message.value == 3.0
    with pytest.raises(InvalidValue, match="a pending dead letter of crm"):
        letters.show("orders/0.0@9")


def test_a_redelivery_by_key_is_carried_out_in_order(shop: Shop) -> None:
    letters = letters_of(shop)
    request = letters.redeliver(key="a", reason="mended")
    assert (request.letters, request.keys) == (2, 1)
    assert letters.is_pending(request)
    owner = shop.owner()
    owner.run()
    assert [value for value, _ in owner.calls] == [1, 2]
    assert not letters.is_pending(request)
    assert [letter.message.value for letter in letters.list()] == [3]
    (entry,) = read_audit(Hub.from_backend(shop.backend), NAME, 10)
    assert (entry.command, entry.reason) == ("dlq redeliver", "mended")


def test_a_letter_is_discarded_with_a_reason_and_those_behind_it_stay(shop: Shop) -> None:
    letters = letters_of(shop)
    with pytest.raises(InvalidValue, match="reason"):
        letters.discard(id="orders/0.0@0", reason=" ")
    assert letters.discard(id="orders/0.0@0", reason="test data").letters == 1
    owner = shop.owner()
    owner.run()
    assert owner.calls == []
    assert [letter.message.value for letter in letters.list()] == [3, 2]


@pytest.mark.parametrize(
    ("conditions", "values"),
    [
        ({"key": ["a", b"b"]}, [1, 2, 3]),
        ({"id": ["orders/0.0@2"]}, [3]),
        ({"error": "negative"}, [1, 2, 3]),
        ({"error": "positive"}, []),
        ({"error_pattern": "neg.tive$"}, [1, 2, 3]),
        ({"after": datetime(2023, 1, 1, tzinfo=UTC)}, [1, 2, 3]),
        ({"before": datetime(2023, 1, 1, tzinfo=UTC)}, []),
        ({"all": True}, [1, 2, 3]),
    ],
)
def test_letters_are_selected_by_key_id_error_and_time(
    shop: Shop, conditions: dict[str, Any], values: list[int]
) -> None:
    letters_of(shop).redeliver(**conditions)
    owner = shop.owner()
    owner.run()
    assert sorted(value for value, _ in owner.calls) == values


def test_a_letter_behind_another_needs_break_order(shop: Shop) -> None:
    with pytest.raises(InvalidValue, match="break_order"):
        letters_of(shop).redeliver(id="orders/0.0@1")
    letters_of(shop).redeliver(id="orders/0.0@1", break_order=True)
    owner = shop.owner()
    owner.run()
    assert owner.calls == [(2, 1)]


@pytest.mark.parametrize(
    "ask",
    [
        lambda letters: letters.redeliver(),
        lambda letters: letters.redeliver(all=True, key="a"),
        lambda letters: letters.discard(reason="why"),
    ],
)
def test_it_must_be_clear_which_letters(shop: Shop, ask: Callable[[DeadLetters], Any]) -> None:
    with pytest.raises(InvalidValue, match="all=True without them"):
        ask(letters_of(shop))


def test_values_are_decoded_to_the_type_that_is_asked_for() -> None:
    class Order(msgspec.Struct):
        id: int

    shop = Shop()
    shop.topic.push({"id": 7}, key="a")
    owner = shop.owner()
    owner.value = lambda turn: 7  # type: ignore[method-assign]
    owner.run(lambda value: REJECTED)
    (letter,) = letters_of(shop).list(type=Order)
    assert letter.message.value == Order(7)


@pytest.mark.parametrize("attempts", [0, -1, True, "3"])
def test_a_number_of_attempts_that_is_not_valid_asks_for_nothing(shop: Shop, attempts: Any) -> None:
    with pytest.raises(InvalidValue, match="attempts"):
        letters_of(shop).redeliver(all=True, attempts=attempts)
