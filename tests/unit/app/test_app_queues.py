"""Queues that an app declares: checked at the import, created or changed at the start, run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailrace import App, Delivery, Hub, InvalidName, InvalidValue, Retry, SqlEffects
from tailrace.app.preparation import open_all, open_queue
from tailrace.errors import QueueExists, TopicExists
from tailrace.subscription.worker.guarantee import Guarantee
from tests.support.waiting import until


@dataclass
class Job:
    """A payload."""

    n: int


def render(job: Delivery[Job]) -> None: ...


def render_many(jobs: list[Delivery[Job]]) -> None: ...


async def render_async(job: Delivery[Job]) -> None: ...


def declared(handler: Callable[[Any], object] = render, **options: Any) -> App:
    app = App()
    app.queue("thumbnails", **options)(handler)
    return app


def test_a_declared_queue_has_what_its_decorator_says() -> None:
    app = App()

    @app.queue("thumbnails", guarantee="exactly-once", shards=24, retry=Retry(3), concurrency=4)
    def handler(job: Delivery[Job]) -> None: ...

    (queue,) = app.queues
    assert (queue.name, queue.topic, queue.handler) == ("thumbnails", "thumbnails", handler)
    assert (queue.type, queue.shards, queue.retry, queue.concurrency) == (Job, 24, Retry(3), 4)
    assert queue.guarantee is Guarantee.EXACTLY_ONCE
    assert app.subscriptions == ()
    assert app.creates_hub


def test_a_queue_has_twelve_shards_and_is_at_least_once_by_default(hub: Hub) -> None:
    (queue,) = declared().queues
    assert open_queue(hub, queue).definition.shards == 12
    assert queue.guarantee is Guarantee.AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("handler", "options", "problem"),
    [
        (render, {"guarantee": "once"}, "guarantee of queue 'thumbnails' (tests"),
        (render, {"effects": SqlEffects("a.db")}, "valid: exactly-once with effects"),
        (render, {"effects": "sqlite:///a.db"}, "valid: a tailrace.SqlEffects"),
        (
            render_async,
            {"effects": SqlEffects("a.db"), "guarantee": "exactly-once"},
            "has effects and is a coroutine function",
        ),
        (render, {"batch": True}, "takes one delivery, and batch=True calls it with a list"),
        (render_many, {}, "takes a list of deliveries, and is called with one at a time"),
        (render_many, {"batch": True, "batch_size": 0}, "batch_size of queue 'thumbnails'"),
        (render, {"shards": 5}, "partitions is 5"),
        (render, {"shards": 0}, "shards of queue 'thumbnails'"),
        (render, {"filter": "key ="}, "the filter of queue 'thumbnails'"),
    ],
)
def test_a_mistake_is_an_error_at_the_declaration_that_names_the_handler(
    handler: Callable[[Any], object], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        declared(handler, **options)
    assert problem in str(refused.value)


def test_a_decorator_without_its_arguments_is_refused() -> None:
    without: Any = App().queue
    with pytest.raises(InvalidValue, match=r"render.*@app\.queue\("):
        without(render)


def test_a_reserved_name_is_refused() -> None:
    with pytest.raises(InvalidName):
        App().queue("tailrace.jobs")(render)


def test_a_name_has_one_handler() -> None:
    app = declared()
    with pytest.raises(InvalidValue, match="two handlers of subscription 'thumbnails'"):
        app.subscription("thumbnails", topic="orders")(render)
    with pytest.raises(InvalidValue, match="two handlers of queue 'thumbnails'"):
        app.queue("thumbnails")(render)


def test_a_queue_is_created_with_the_type_of_the_annotation(hub: Hub) -> None:
    app = declared(shards=2, retry=Retry(3), filter="key == 'c7'", on_dead_letter="continue")
    open_queue(hub, app.queues[0])
    held = hub.subscription("thumbnails").definition
    assert (hub.queues(), held.shards, held.retry.attempts) == (["thumbnails"], 2, 3)
    assert (held.filter, held.on_dead_letter) == ("key == 'c7'", "continue")
    hub.topic("thumbnails", Job)


def test_the_retry_policy_and_the_filter_of_an_existing_queue_become_the_declared_ones(
    hub: Hub,
) -> None:
    open_queue(hub, declared(shards=2).queues[0])
    open_queue(hub, declared(retry=Retry(3), filter="key == 'c7'").queues[0])
    held = hub.subscription("thumbnails").definition
    assert (held.shards, held.retry.attempts, held.filter) == (2, 3, "key == 'c7'")
    open_queue(hub, declared().queues[0])
    assert hub.subscription("thumbnails").definition.filter is None


def test_the_number_of_shards_of_an_existing_queue_cannot_change(hub: Hub) -> None:
    open_queue(hub, declared(shards=2).queues[0])
    with pytest.raises(QueueExists, match=r"shards is 2, not 4.*render.*queue delete thumbnails"):
        open_queue(hub, declared(shards=4).queues[0])


def test_a_topic_becomes_a_queue_if_the_app_declares_both(hub: Hub) -> None:
    hub.create_topic("thumbnails", Job)
    app = declared()
    with pytest.raises(TopicExists, match="it is a topic without a queue"):
        open_all(hub, app.chosen(), app.topics)
    app.topic("thumbnails", Job)
    open_all(hub, app.chosen(), app.topics)
    assert hub.queues() == ["thumbnails"]


def test_a_subscription_may_have_a_queue_of_the_app_as_its_topic(hub: Hub) -> None:
    app = App()
    app.subscription("copies", topic="thumbnails")(render)
    app.queue("thumbnails")(render)
    open_all(hub, app.chosen(), app.topics)
    assert hub.subscriptions() == ["copies", "thumbnails"]


def test_the_policy_on_dead_letters_cannot_change(hub: Hub) -> None:
    open_queue(hub, declared().queues[0])
    other = declared(on_dead_letter="continue", retry=Retry(2)).queues[0]
    with pytest.raises(QueueExists, match=r"on_dead_letter is block, not continue.*render"):
        open_queue(hub, other)
    assert hub.subscription("thumbnails").definition.retry.attempts == 8


def test_queues_and_subscriptions_of_an_app_run_together(hub: Hub, tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    sqlite3.connect(file).execute("CREATE TABLE rows (n)")
    app, mailed = App(), list[int]()
    app.topic("done", int)

    @app.queue("jobs", guarantee="exactly-once")
    def push(job: Delivery[int]) -> None:
        job.tx.push("done", job.value, key=job.key)

    @app.queue("rows", guarantee="exactly-once", effects=SqlEffects(file), batch=True)
    def insert(jobs: list[Delivery[int]]) -> None:
        for job in jobs:
            job.connection.execute("INSERT INTO rows VALUES (?)", (job.value,))

    @app.subscription("mailer", topic="done")
    def mail(done: Delivery[int]) -> None:
        mailed.append(done.value)

    with app.start(hub) as running:
        assert list(running.workers) == ["jobs", "rows", "mailer"]
        for name in ("jobs", "rows"):
            hub.queue(name, int).push_many([(f"c{n}", n) for n in range(10)])
        until(lambda: len(mailed) == 10 and hub.queue("rows").stats().total.acked == 10)
    assert sorted(mailed) == list(range(10))
    assert sqlite3.connect(file).execute("SELECT count(*) FROM rows").fetchone() == (10,)


def test_only_the_named_queues_run(hub: Hub) -> None:
    app = declared()
    app.queue("others")(render)
    with app.start(hub, only=["others"]) as running:
        assert list(running.workers) == ["others"]
    assert hub.queues() == ["others"]
