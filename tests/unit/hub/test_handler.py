"""Handlers: their signatures and the types of their annotations, which are text in this module."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from tailrace.delivery.delivery import Delivery
from tailrace.errors import InvalidValue
from tailrace.hub.handler import check_handler, label_of, payload_type
from tailrace.message import Message

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Order:
    """A payload."""

    id: int


@dataclass
class Refund:
    """A payload that JSON does not tell from an order."""

    id: int


def mail(order: Delivery[Order]) -> None: ...


async def mail_later(order: Delivery[Order]) -> None: ...


def nested(order: Delivery[list[Order]]) -> None: ...


def untyped(order: Any) -> None: ...


def bare(order: Delivery) -> None: ...  # type: ignore[type-arg]


def plain_message(order: Message[Order]) -> None: ...


def annotated(order: Annotated[Delivery[Order], "of the shop"]) -> None: ...


def with_default(order: Delivery[Order], to: str = "post@example.org") -> None: ...


def many(*orders: Delivery[Order]) -> None: ...


class Mailer:
    """A handler with a state."""

    def __call__(self, order: Delivery[Order]) -> None: ...

    def mail(self, order: Delivery[Order]) -> None: ...

    @staticmethod
    def post(order: Delivery[Order]) -> None: ...


def logged(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def call(*arguments: Any) -> None:
        function(*arguments, "log")

    return call


@logged
def decorated(order: Delivery[Order], log: str) -> None: ...


def lambda_handler() -> Callable[[Any], None]:
    return lambda order: None


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (mail, Order),
        (mail_later, Order),
        (nested, list[Order]),
        (untyped, None),
        (bare, None),
        (plain_message, Order),
        (annotated, Order),
        (with_default, Order),
        (many, Order),
        (Mailer(), Order),
        (Mailer().mail, Order),
        (Mailer.post, Order),
        (functools.partial(with_default, to="x"), Order),
        (decorated, Order),
        (lambda_handler(), None),
        (operator.itemgetter(0), None),
        (print, None),
    ],
)
def test_the_annotation_of_the_first_parameter_has_the_payload_type(
    handler: Any, expected: Any
) -> None:
    check_handler(handler, "the handler")
    assert payload_type(handler, {}, "the handler") == expected


def test_an_annotation_may_use_a_type_that_is_local_where_the_handler_is_declared() -> None:
    class Local(Order):
        pass

    def handler(order: Delivery[Local]) -> None: ...

    assert payload_type(handler, locals(), "the handler") is Local


def test_an_annotation_that_cannot_be_evaluated_is_refused_with_the_cause() -> None:
    def handler(order: Delivery[Decimal]) -> None: ...

    with pytest.raises(
        InvalidValue, match=r"annotation Delivery\[Decimal\] of the handler"
    ) as caught:
        payload_type(handler, {}, "the handler")
    assert "NameError: name 'Decimal' is not defined" in str(caught.value)
    assert "if TYPE_CHECKING" in str(caught.value)


def test_a_return_annotation_that_cannot_be_evaluated_does_not_matter() -> None:
    def handler(order: Delivery[Order]) -> Decimal:
        raise NotImplementedError

    assert payload_type(handler, {}, "the handler") is Order


def test_an_annotation_that_is_not_of_a_delivery_is_refused_with_the_right_one() -> None:
    def handler(order: Order) -> None: ...

    with pytest.raises(InvalidValue, match="takes Order, not a Delivery") as caught:
        payload_type(handler, {}, "the handler")
    assert "order: Delivery[Order] and use order.value" in str(caught.value)


def test_a_payload_type_that_cannot_be_decoded_is_refused() -> None:
    def handler(order: Delivery[Order | Refund]) -> None: ...

    with pytest.raises(InvalidValue, match="the handler takes payloads of a type that cannot"):
        payload_type(handler, {}, "the handler")


def no_parameter() -> None: ...


def two_parameters(order: Delivery[Order], other: int) -> None: ...


def only_by_name(*, order: Delivery[Order]) -> None: ...


def generating(order: Delivery[Order]) -> Iterator[int]:
    yield 1


class Generating:
    """An object whose call would run nothing."""

    def __call__(self, order: Delivery[Order]) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        (no_parameter, r"one argument: its parameters are \(\)"),
        (two_parameters, "cannot be called with one argument: its parameters are .order:"),
        (only_by_name, "cannot be called with one argument"),
        (Mailer.mail, r"app.subscription\(...\)\(instance.method\)"),
        (Mailer, "is not a function"),
        ("mail", "is not a function"),
        (generating, "has a yield"),
        (Generating(), "has a yield"),
    ],
)
def test_a_handler_that_cannot_be_called_with_a_delivery_is_refused(
    handler: Any, problem: str
) -> None:
    with pytest.raises(InvalidValue, match=f"the handler.*{problem}"):
        check_handler(handler, "the handler")


def test_a_handler_is_named_with_its_module() -> None:
    assert label_of(mail).endswith("test_handler.mail")
    assert label_of(Mailer().mail).endswith("test_handler.Mailer.mail")
    assert label_of(Mailer()).endswith("test_handler.Mailer")
    assert label_of(functools.partial(mail)).endswith("test_handler.mail")
