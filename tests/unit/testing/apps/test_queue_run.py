"""Queues of an app in test runs: what handlers push, write and skip."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tailrace import App, Delivery, Retry, SqlEffects
from tailrace.errors import EffectsUnavailable
from tailrace.testing import run


def pushing_app() -> App:
    app = App()
    app.topic("done", int, partitions=1)

    @app.queue("jobs", guarantee="exactly-once", retry=Retry(3, first="1m", max="1h"))
    def work(job: Delivery[int]) -> None:
        job.tx.push("done", job.value, key=job.key)

    return app


def stored(shop: Any, topic: str) -> list[int]:
    with shop.hub.topic(topic).tail(group="look", until="end") as consumer:
        return [delivery.value for delivery in consumer]


def test_what_a_handler_pushes_is_stored_once_though_its_worker_dies_after_the_call() -> None:
    with run(pushing_app()) as shop:
        shop.endpoint("jobs").kills_worker_after_call(times=2)
        for number in range(5):
            shop.push("jobs", number, key=f"c{number}")
        shop.until_idle()
        assert sorted(stored(shop, "done")) == list(range(5))
        assert len(shop.deliveries("jobs")) > 5
        assert shop.hub.queue("jobs").stats().conserved


def test_a_failed_job_is_retried_in_virtual_time() -> None:
    with run(pushing_app()) as shop:
        began = shop.now
        shop.endpoint("jobs").fails(times=1)
        shop.push("jobs", 7, key="c7")
        shop.until_idle()
        assert [each.attempt for each in shop.deliveries("jobs")] == [1, 2]
        assert (shop.now - began).total_seconds() >= 30
        assert stored(shop, "done") == [7]


def rows_app(file: Path) -> App:
    app = App()

    @app.queue("rows", guarantee="exactly-once", effects=SqlEffects(file), batch=True)
    def insert(batch: list[Delivery[int]]) -> None:
        for job in batch:
            job.connection.execute("INSERT INTO rows VALUES (?)", (job.value,))

    return app


def test_effects_are_in_the_real_database_once_though_the_worker_dies(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    sqlite3.connect(file).execute("CREATE TABLE rows (n)")
    with run(rows_app(file)) as shop:
        shop.endpoint("rows").kills_worker_after_call(times=2)
        for number in range(5):
            shop.push("rows", number, key=f"c{number}")
        shop.until_idle()
        assert len(shop.deliveries("rows")) == 5
    rows = sqlite3.connect(file).execute("SELECT n FROM rows ORDER BY n").fetchall()
    assert rows == [(n,) for n in range(5)]


def test_a_database_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with run(rows_app(tmp_path / "app.db")) as shop:
        shop.push("rows", 1)
        with pytest.raises(EffectsUnavailable, match=r"app\.db"):
            shop.until_idle()


def test_at_most_once_no_message_is_called_twice_and_the_skipped_are_counted() -> None:
    app = App()

    @app.queue("jobs", guarantee="at-most-once")
    def work(job: Delivery[int]) -> None: ...

    with run(app) as shop:
        shop.endpoint("jobs").kills_worker_after_call(times=1)
        for _ in range(2):
            for number in range(6):
                shop.push("jobs", number, key=f"c{number}")
            shop.until_idle()
        ids = [each.id for each in shop.deliveries("jobs")]
        total = shop.hub.queue("jobs").stats().total
        assert len(ids) == len(set(ids))
        # The call before the kill had not ended for those who count.
        assert (total.acked, total.skipped) == (12, 12 - len(ids) + 1)
