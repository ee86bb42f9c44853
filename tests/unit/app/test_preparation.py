"""Topics and subscriptions are made or changed when an app starts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

import tailrace
from tailrace import App, Delivery, Hub, Retry
from tailrace.app.preparation import create_topic, open_queue, open_subscription


@dataclass
class Order:
    """A payload."""

    id: int


def start(hub: Hub, **options: Any) -> None:
    """Prepare the hub as an app with one subscription does that starts."""
    app = App()

    @app.subscription("mailer", **{"topic": "orders", **options})
    def mail(order: Delivery[Order]) -> None: ...

    open_subscription(hub, app.subscriptions[0])


@pytest.fixture
def orders(hub: Hub) -> None:
    hub.create_topic("orders", Order)


@pytest.mark.usefixtures("orders")
def test_a_subscription_is_created_as_it_is_declared(hub: Hub) -> None:
    start(hub, retry=Retry(3), filter="key == 'c7'", on_dead_letter="continue", shards=2)
    held = hub.subscription("mailer").definition
    assert (held.topic, held.retry, held.filter) == ("orders", Retry(3), "key == 'c7'")
    assert (held.on_dead_letter, held.shards) == ("continue", 2)


@pytest.mark.usefixtures("orders")
def test_a_subscription_starts_where_it_is_declared_to(hub: Hub) -> None:
    start(hub, start="latest")
    assert hub.subscription("mailer").definition.start == "latest"
    start(hub, start="earliest")
    assert hub.subscription("mailer").definition.start == "latest"


@pytest.mark.usefixtures("orders")
def test_a_changed_retry_policy_and_filter_are_applied_and_logged(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    start(hub, retry=Retry(3))
    with caplog.at_level(logging.INFO, "tailrace.app"):
        start(hub, retry=Retry(5), filter="key == 'c7'")
    held = hub.subscription("mailer").definition
    assert (held.attempts, held.filter) == (5, "key == 'c7'")
    changes = [record.getMessage() for record in caplog.records]
    assert changes == [
        "changed the retry policy of subscription mailer from attempts 3, first 1s, max 10m to"
        " attempts 5, first 1s, max 10m",
        "changed the filter of subscription mailer from none to key == 'c7'",
    ]


@pytest.mark.usefixtures("orders")
def test_a_filter_that_is_no_longer_declared_is_removed(hub: Hub) -> None:
    start(hub, filter="key == 'c7'")
    start(hub)
    assert hub.subscription("mailer").definition.filter is None


@pytest.mark.usefixtures("orders")
def test_nothing_is_logged_if_nothing_has_changed(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    start(hub, shards=2)
    with caplog.at_level(logging.INFO, "tailrace.app"):
        start(hub)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"topic": "payments"}, "its topic is 'orders', not 'payments'"),
        ({"shards": 4}, "its number of shards is 2, not 4"),
        ({"on_dead_letter": "continue"}, "its on_dead_letter is block, not continue"),
    ],
)
@pytest.mark.usefixtures("orders")
def test_a_change_that_cannot_be_made_is_refused_and_changes_nothing(
    hub: Hub, changed: dict[str, Any], difference: str
) -> None:
    hub.create_topic("payments", Order)
    start(hub, shards=2)
    before = hub.subscription("mailer").definition
    with pytest.raises(tailrace.SubscriptionExists, match=difference) as caught:
        start(hub, **changed, retry=Retry(99))
    assert "mail), or under another name, or delete it" in str(caught.value)
    assert "tailrace subscription delete mailer" in str(caught.value)
    assert hub.subscription("mailer").definition == before


def test_a_topic_that_does_not_exist_is_an_error_with_the_command_that_creates_it(hub: Hub) -> None:
    with pytest.raises(tailrace.UnknownTopic, match="tailrace topic create orders --partitions 4"):
        start(hub)
    assert hub.subscriptions() == []


def test_a_handler_of_another_payload_type_than_the_topics_is_refused(hub: Hub) -> None:
    hub.create_topic("orders", int)
    with pytest.raises(tailrace.TopicTypeMismatch, match="topic 'orders' takes int"):
        start(hub)
    assert hub.subscriptions() == []


def test_a_declared_topic_is_created_once_and_has_to_agree_later(hub: Hub) -> None:
    app = App()
    app.topic("orders", Order, partitions=6, order_by="id")
    for _ in range(2):
        create_topic(hub, app.topics[0])
    assert hub.topic("orders").storage_topics[0].partitions == 6
    assert hub.topic("orders").view.definition.order_by == "id"
    other = App()
    other.topic("orders", Order, partitions=8, order_by="id")
    with pytest.raises(tailrace.TopicExists, match="partitions"):
        create_topic(hub, other.topics[0])


@pytest.mark.usefixtures("orders")
def test_load_control_becomes_the_declared_one_and_the_change_is_logged(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    start(hub, concurrency_total=10)
    assert hub.subscription("mailer").definition.load.concurrency_total == 10
    with caplog.at_level(logging.INFO, "tailrace.app"):
        start(hub)
    assert hub.subscription("mailer").definition.load.concurrency_total is None
    assert "changed the concurrency_total of subscription mailer from 10 to off" in caplog.text


def test_wrong_load_control_is_refused_where_it_is_declared_with_the_handler() -> None:
    app = App()
    problem = r"concurrency_total of subscription 'mailer' .*mail\) is 2 · valid: 4 or more"
    with pytest.raises(tailrace.InvalidValue, match=problem):

        @app.subscription("mailer", topic="orders", shards=4, concurrency_total=2)
        def mail(order: Delivery[Order]) -> None: ...


def test_the_load_control_of_a_queue_becomes_the_declared_one(hub: Hub) -> None:
    for total in (20, 30):
        app = App()

        @app.queue("jobs", concurrency_total=total)
        def work(job: Delivery[Order]) -> None: ...

        open_queue(hub, app.queues[0])
        assert hub.subscription("jobs").definition.load.concurrency_total == total
    with pytest.raises(tailrace.QueueExists, match="its concurrency_total is 30, not 40"):
        hub.queue("jobs", concurrency_total=40)
    assert hub.queue("jobs").subscription.definition.load.concurrency_total == 30
