"""The declaration of an app."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace import App, Delivery, InvalidName, InvalidValue, Retry
from tailrace.message import Message
from tailrace.subscription.shard.queues import OnDeadLetter


@dataclass
class Order:
    """A payload."""

    id: int


def declare(app: App, name: str = "mailer", **options: Any) -> None:
    """Declare a subscription with a handler of the name `mail`."""

    @app.subscription(name, **{"topic": "orders", **options})
    def mail(order: Delivery[Order]) -> None: ...


def test_a_declared_subscription_has_what_its_decorator_says() -> None:
    app = App()

    @app.subscription(
        "mailer",
        topic="orders",
        retry=Retry(3),
        concurrency=64,
        timeout="5s",
        filter="header.country == 'IN'",
        on_dead_letter="continue",
        shards=2,
    )
    async def mail(order: Delivery[Order]) -> None: ...

    (declared,) = app.subscriptions
    assert (declared.name, declared.topic, declared.handler) == ("mailer", "orders", mail)
    assert declared.type is Order
    assert (declared.retry, declared.concurrency, declared.shards) == (Retry(3), 64, 2)
    assert declared.timeout == timedelta(seconds=5)
    assert declared.filter == "header.country == 'IN'"
    assert declared.accepts is None
    assert declared.on_dead_letter is OnDeadLetter.CONTINUE


def test_a_filter_that_does_not_parse_is_refused_at_its_declaration() -> None:
    with pytest.raises(InvalidValue, match="filter, character 5: '=' is not an operator"):
        declare(App(), filter="key = 'a'")


def test_a_filter_may_be_a_function() -> None:
    def large(message: Message[Any]) -> bool:
        return len(message.data) > 100

    app = App()
    declare(app, filter=large)
    assert (app.subscriptions[0].filter, app.subscriptions[0].accepts) == (None, large)


def test_a_decorated_function_can_be_called_as_it_is() -> None:
    app = App()

    @app.subscription("mailer", topic="orders")
    def mail(order: Any) -> str:
        return f"to {order}"

    assert mail("c7") == "to c7"


def test_one_function_can_handle_two_subscriptions() -> None:
    app = App()

    @app.subscription("old", topic="orders")
    @app.subscription("new", topic="orders-2")
    def mail(order: Delivery[Order]) -> None: ...

    assert [each.topic for each in app.subscriptions] == ["orders-2", "orders"]


def test_a_type_may_be_local_to_the_function_that_declares_the_app() -> None:
    class Local(Order):
        pass

    app = App()

    @app.subscription("mailer", topic="orders")
    def mail(order: Delivery[Local]) -> None: ...

    assert app.subscriptions[0].type is Local


class AsyncFilter:
    """A filter whose answer would have to be awaited."""

    async def __call__(self, message: Message[Any]) -> bool:
        return False


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("concurrency", 0),
        ("concurrency", 20_000),
        ("concurrency", True),
        ("concurrency", None),
        ("shards", 0),
        ("shards", 1.5),
        ("retry", 8),
        ("filter", 7),
        ("filter", AsyncFilter()),
        ("on_dead_letter", "drop"),
        ("timeout", "0s"),
        ("timeout", 30),
    ],
)
def test_a_value_that_is_not_valid_is_refused_with_the_name_of_the_handler(
    option: str, value: Any
) -> None:
    app = App()
    with pytest.raises(InvalidValue, match=rf"{option} of subscription 'mailer' \(.*mail\) is"):
        declare(app, **{option: value})
    assert app.subscriptions == ()


def test_a_subscription_that_is_declared_twice_is_refused_with_both_handlers() -> None:
    app = App()
    declare(app)
    with pytest.raises(InvalidValue, match=r"mailer': .*declare.*mail and .*declare.*mail"):
        declare(app)


@pytest.mark.parametrize("name", ["", "a/b", "-x", 7])
def test_a_name_that_is_not_valid_is_refused(name: Any) -> None:
    with pytest.raises(InvalidName):
        declare(App(), name)
    with pytest.raises(InvalidName):
        declare(App(), topic=f".{name}")


def test_a_declared_topic_has_a_type_and_partitions() -> None:
    app = App()
    app.topic("orders", Order, partitions=6)
    (topic,) = app.topics
    assert (topic.name, topic.type, topic.partitions) == ("orders", Order, 6)


def test_a_topic_that_cannot_be_created_is_refused_when_it_is_declared() -> None:
    app = App()
    with pytest.raises(InvalidValue, match="Order has no field 'client'"):
        app.topic("orders", Order, order_by="client")
    with pytest.raises(InvalidName):
        app.topic("lake.commits")
    with pytest.raises(InvalidValue, match="partitions is 5"):
        app.topic("orders", partitions=5)
    app.topic("orders")
    with pytest.raises(InvalidValue, match="two topics 'orders'"):
        app.topic("orders", partitions=8)


def test_the_hub_of_an_app_is_a_directory(tmp_path: Path) -> None:
    assert App(tmp_path).hub == str(tmp_path)
    assert App("data").hub == "data"
    assert App().hub is None
    for invalid in ("", 7):
        with pytest.raises(InvalidValue, match="valid: a directory"):
            App(invalid)  # type: ignore[arg-type]


def test_subscriptions_can_be_chosen_by_name() -> None:
    app = App()
    declare(app, "mailer")
    declare(app, "crm")
    assert [each.name for each in app.chosen()] == ["mailer", "crm"]
    assert [each.name for each in app.chosen(["crm"])] == ["crm"]
    with pytest.raises(
        InvalidValue, match="no queue or subscription 'mailr' · valid: mailer, crm · did you"
    ):
        app.chosen(["mailr"])
    with pytest.raises(InvalidValue, match="one or more of mailer, crm"):
        app.chosen([])


def test_an_app_without_subscriptions_cannot_be_run() -> None:
    with pytest.raises(InvalidValue, match="no queue and no subscription · declare one: @app"):
        App().chosen()
