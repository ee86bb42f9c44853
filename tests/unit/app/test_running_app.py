"""An app that runs in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace import App, Delivery, Hub
from tests.support.waiting import in_thread, until


def app_of(**handlers: Callable[[Any], object]) -> App:
    """Return an app with a subscription of the topic orders for each handler."""
    app = App()
    app.topic("orders", int)
    for name, handler in handlers.items():
        app.subscription(name, topic="orders")(handler)
    return app


def test_every_subscription_gets_every_message(hub: Hub) -> None:
    mailed: list[int] = []
    billed: list[int] = []

    def mail(order: Delivery[int]) -> None:
        mailed.append(order.value)

    async def bill(order: Delivery[int]) -> None:
        billed.append(order.value)

    with app_of(mailer=mail, billing=bill).start(hub) as running:
        assert set(running.workers) == {"mailer", "billing"}
        hub.topic("orders").push_many([("c7", number) for number in range(10)])
        until(lambda: len(mailed) == len(billed) == 10)
    assert mailed == billed == list(range(10))


def test_a_value_has_the_type_of_the_annotation(hub: Hub) -> None:
    hub.create_topic("orders")
    got: list[object] = []
    app = App()

    @app.subscription("mailer", topic="orders")
    def mail(order: Delivery[dict[str, float]]) -> None:
        got.append(order.value)

    with app.start(hub):
        hub.topic("orders").push({"total": 9}, key="c7")
        until(lambda: got)
    assert got == [{"total": 9.0}]
    assert isinstance(got[0]["total"], float)  # type: ignore[index]


def test_a_function_that_filters_is_asked_for_each_message(hub: Hub) -> None:
    got: list[str | None] = []
    app = App()
    app.topic("orders", int)

    @app.subscription("mailer", topic="orders", filter=lambda message: message.key == "c8")
    def mail(order: Delivery[int]) -> None:
        got.append(order.key)

    with app.start(hub):
        hub.topic("orders").push_many([("c7", 1), ("c8", 2), ("c7", 3), ("c8", 4)])
        until(lambda: len(got) == 2)
    assert got == ["c8", "c8"]


def test_only_the_chosen_subscriptions_are_started(hub: Hub) -> None:
    app = app_of(mailer=print, billing=print)
    with app.start(hub, only=["billing"]) as running:
        assert list(running.workers) == ["billing"]
    assert hub.subscriptions() == ["billing"]


def test_a_stop_lets_the_calls_under_way_end(hub: Hub) -> None:
    called, may_end = threading.Event(), threading.Event()
    ended: list[int] = []

    def mail(order: Delivery[int]) -> None:
        called.set()
        assert may_end.wait(60)
        ended.append(order.value)

    running = app_of(mailer=mail).start(hub)
    hub.topic("orders").push(7, key="c7")
    assert called.wait(60)
    assert not running.wait(0)
    running.stop()
    assert running.wait(60)
    in_thread(may_end.set)
    assert running.close()
    assert ended == [7]


def test_a_call_that_does_not_end_within_the_drain_timeout_is_reported(hub: Hub) -> None:
    called, may_end = threading.Event(), threading.Event()

    def mail(order: Delivery[int]) -> None:
        called.set()
        may_end.wait(60)

    running = app_of(mailer=mail, billing=print).start(hub, drain_timeout="10ms")
    hub.topic("orders").push(7, key="c7")
    assert called.wait(60)
    assert not running.close()
    may_end.set()


def test_the_error_of_one_subscription_stops_the_others_and_is_raised(hub: Hub) -> None:
    running = app_of(mailer=print, billing=print).start(hub)
    with running:
        until(lambda: all(worker.stats().shards for worker in running.workers.values()))
        hub.subscription("mailer").delete()
        with pytest.raises(tailrace.UnknownSubscription, match="mailer"):
            running.wait(60)
        assert running.workers["billing"].wait(0)


def test_an_app_whose_queue_was_deleted_ends_with_an_error_about_the_queue(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    app.queue("jobs")(print)
    with app.start(hub) as running:
        until(lambda: running.workers["jobs"].stats().shards)
        hub.delete_queue("jobs")
        with pytest.raises(tailrace.UnknownQueue, match="no queue 'jobs'"):
            running.wait(60)
    assert "the worker of queue jobs ended" in caplog.messages


def test_a_subscription_that_cannot_start_closes_those_that_have_started(hub: Hub) -> None:
    app = app_of(mailer=print)
    app.subscription("late", topic="orders", shards=3)(print)
    before = set(threading.enumerate())
    with pytest.raises(tailrace.InvalidValue, match="shards"):
        app.start(hub)
    until(lambda: set(threading.enumerate()) <= before)


def signal_after(called: threading.Event, *numbers: int) -> None:
    """Send this process signals when a handler has been called.

    They are delivered to a thread that is not the main one, as the system may do.
    """

    def send() -> None:
        assert called.wait(60)
        for number in numbers:
            signal.pthread_kill(threading.get_ident(), number)

    in_thread(send)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_that_has_drained(hub: Hub, number: int) -> None:
    called = threading.Event()
    app = app_of(mailer=lambda order: called.set())
    hub.create_topic("orders", int).push(7, key="c7")
    signal_after(called, number)
    assert app.run(hub)


def test_an_app_runs_on_its_own_hub(tmp_path: Path) -> None:
    called = threading.Event()
    app = App(tmp_path / "hub")
    app.topic("orders", int)
    app.subscription("mailer", topic="orders")(lambda order: called.set())
    with tailrace.open(tmp_path / "hub") as hub:
        hub.create_topic("orders", int).push(7, key="c7")
    signal_after(called, signal.SIGTERM)
    assert app.run()


def test_no_hub_is_created_for_an_app_that_declares_no_topic(tmp_path: Path) -> None:
    app = App(tmp_path / "hub")
    app.subscription("mailer", topic="orders")(print)
    with pytest.raises(tailrace.UnknownHub):
        app.run()
    assert not (tmp_path / "hub").exists()
