"""The examples of the pages on queues that write to PostgreSQL, run against a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import psycopg

import tailrace
from tailrace import App, Delivery, SqlEffects
from tests.support.waiting import until

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "postgresql://user:password@host:5432/shop"


class Paid(msgspec.Struct):
    """The payload of the example on the page about Celery."""

    customer: str
    amount: int


def run_example(page: str, url: str, names: dict[str, Any]) -> None:
    """Run the block of a page that names a server, with one that runs."""
    blocks = re.findall(
        r"^```text\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    )
    (code,) = (block for block in blocks if ADDRESS in block)
    exec(compile(code.replace(ADDRESS, url), page, "exec"), names)


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return [] if cursor.description is None else cursor.fetchall()


class HandledPayments:
    """A queue whose consumer ends when it has handled this many messages."""

    def __init__(self, queue: tailrace.Queue[Any], count: int) -> None:
        self.queue, self.count = queue, count

    def tail(self, *arguments: Any, **options: Any) -> HandledPayments:
        self.consumer = self.queue.tail(*arguments, **options)
        return self

    def wait(self) -> None:
        until(lambda: self.queue.stats().total.acked == self.count)

    def __enter__(self) -> HandledPayments:
        return self

    def __exit__(self, *raised: object) -> None:
        self.consumer.shutdown()


def test_the_page_on_queues_pays_each_payment_once(postgres_url: str, tmp_path: Path) -> None:
    query(postgres_url, "CREATE TABLE paid (id bigint PRIMARY KEY, amount bigint)")
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        payments = hub.queue("payments", dict[str, int])
        payments.push_many([(f"c{n % 3}", {"id": n, "amount": n}) for n in range(20)])
        run_example("queues.md", postgres_url, {"payments": HandledPayments(payments, 20)})
    assert query(postgres_url, "SELECT count(*), sum(amount) FROM paid") == [(20, 190)]


def test_the_page_on_celery_adds_each_total_once(postgres_url: str, tmp_path: Path) -> None:
    query(postgres_url, "CREATE TABLE customers (id text PRIMARY KEY, total bigint)")
    query(postgres_url, "INSERT INTO customers VALUES ('c7', 0)")
    app = App()
    names = {"app": app, "SqlEffects": SqlEffects, "Delivery": Delivery, "Paid": Paid}
    run_example("coming-from-celery.md", postgres_url, names)
    with tailrace.open(tmp_path / "hub", sync="none") as hub, app.start(hub):
        totals = hub.queue("totals", Paid)
        totals.push_many([("c7", Paid("c7", 10)) for _ in range(20)])
        until(lambda: totals.stats().total.acked == 20)
    assert query(postgres_url, "SELECT total FROM customers") == [(200,)]
