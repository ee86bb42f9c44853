"""Consumer processes of a queue that are killed, and the verdict about what they stored."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import psycopg

import tailrace
from tailrace import (
    Delivery,
    EffectsUnavailable,
    Hub,
    Queue,
    QueueConsumer,
    QueueStats,
    Retry,
    SqlEffects,
)
from tests.support.processes import Child, Report
from tests.support.topics import all_messages
from tests.support.waiting import DEADLINE_S, until

NAME = "jobs"
OUTPUT = "done"
SHARDS = 12
KEYS = 50
FAILS_ONCE_EVERY = 97
QUICKLY = Retry(8, first="20ms", max="200ms")


Handler: TypeAlias = Callable[[Delivery[int]], None] | Callable[[list[Delivery[int]]], None]


class Output(NamedTuple):
    """What a handler stored for a message."""

    key: str
    number: int


def fail_once(delivery: Delivery[int]) -> None:
    """Fail the first attempt of some messages, after everything was written."""
    if delivery.value % FAILS_ONCE_EVERY == 5 and delivery.attempt == 1:
        raise ConnectionError("the warehouse does not answer")


def copy(delivery: Delivery[int]) -> None:
    """Push one output for each message."""
    delivery.tx.push(OUTPUT, delivery.value, key=delivery.key)
    fail_once(delivery)


def copy_all(batch: list[Delivery[int]]) -> None:
    """Push one output for each message of a batch, all at once."""
    batch[0].tx.push_many(OUTPUT, [(each.key, each.value) for each in batch])
    for each in batch:
        fail_once(each)


def insert_all(batch: list[Delivery[int]]) -> None:
    """Insert one row for each message of a batch."""
    for each in batch:
        insert(each)


def insert(delivery: Delivery[int]) -> None:
    """Insert one row for each message, in PostgreSQL or SQLite."""
    place = "?" if isinstance(getattr(delivery.connection, "total_changes", None), int) else "%s"
    delivery.connection.execute(
        f"INSERT INTO done (key, number) VALUES ({place}, {place})",
        (delivery.key, delivery.value),
    )
    fail_once(delivery)


def consume(
    report: Report,
    /,
    hub_path: Path,
    handler: Handler,
    database: str | None = None,
    **options: Any,
) -> None:
    """Consume until the process is killed or gets SIGTERM."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    if database is not None:
        options["effects"] = SqlEffects(database)
    with (
        tailrace.open(hub_path) as hub,
        start_again_until_the_database_answers(hub, handler, **options) as consumer,
    ):
        report(consumer.id)
        over.wait()


def start_again_until_the_database_answers(
    hub: Hub, handler: Handler, **options: Any
) -> QueueConsumer:
    """Start a consumer as a supervisor would: it refuses to start without its database."""
    queue, started = hub.queue(NAME, int), time.monotonic()
    while True:
        try:
            return queue.tail(handler, **options)
        except EffectsUnavailable:
            if time.monotonic() - started > DEADLINE_S:
                raise
            time.sleep(0.05)


def make_queue(path: Path, *, retry: Retry = QUICKLY, shards: int = SHARDS) -> None:
    """Create a hub with a queue and a topic of outputs."""
    with tailrace.open(path, sync="none") as hub:
        hub.queue(NAME, int, retry=retry, shards=shards)
        hub.create_topic(OUTPUT, int, partitions=4)


def fill(queue: Queue[int], first: int, after: int, batch: int = 5_000) -> None:
    """Push these numbers, with the keys in turn."""
    for start in range(first, after, batch):
        numbers = range(start, min(start + batch, after))
        queue.push_many([(f"k{number % KEYS}", number) for number in numbers])


@contextmanager
def consumers(count: int, *arguments: Any, **options: Any) -> Iterator[list[Child]]:
    """Run consumer processes. At the end those that are alive leave in an orderly way."""
    children = [Child(consume, *arguments, **options) for _ in range(count)]
    try:
        for child in children:
            child.next_report()
        yield children
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
        for child in children:
            list(child.rest())


def kill_at_random(
    children: list[Child],
    kills: int,
    seed: int,
    start: Callable[[], Child],
    before: Callable[[int], None] = lambda kill: None,
) -> None:
    """Kill one consumer after the other, at random instants, and start others in their places.

    `before` is called with the number of each kill, from 0, a short time before it.
    """
    instants = random.Random(seed)
    for kill in range(kills):
        before(kill)
        time.sleep(instants.uniform(0.0, 0.6))
        victim = instants.randrange(len(children))
        list(children[victim].kill())
        children[victim] = start()
        children[victim].next_report()


def await_consumed(queue: Queue[int], within_s: float = 1200.0) -> QueueStats:
    """Wait until every message has ended, and return the counts."""

    def consumed() -> bool:
        total = queue.stats().total
        ended = total.acked + total.filtered + total.discarded + total.dead
        return ended >= total.inserted

    until(consumed, f"{queue.name} was not consumed", within_s)
    return queue.stats()


class Verdict(NamedTuple):
    """What is wrong with the outputs of the numbers from 0 on."""

    twice: list[int]
    missing: list[int]
    disordered: list[str]

    @property
    def violations(self) -> int:
        return len(self.twice) + len(self.missing) + len(self.disordered)


def judge(outputs: Iterable[Output], count: int) -> Verdict:
    """Compare the outputs, in the order in which they were stored, with what was pushed."""
    seen: Counter[int] = Counter()
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for key, number in outputs:
        seen[number] += 1
        by_key[key].append(number)
    return Verdict(
        sorted(number for number, times in seen.items() if times > 1),
        sorted(set(range(count)) - set(seen)),
        sorted(key for key, numbers in by_key.items() if numbers != sorted(numbers)),
    )


def topic_outputs(hub: Hub) -> list[Output]:
    return [Output(str(each.key), each.value) for each in all_messages(hub.topic(OUTPUT, int))]


SQL_TABLE = "CREATE TABLE done (id {serial}, key TEXT NOT NULL, number INTEGER NOT NULL)"
SQL_ROWS = "SELECT key, number FROM done ORDER BY id"


def make_sqlite(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        connection.execute(SQL_TABLE.format(serial="INTEGER PRIMARY KEY AUTOINCREMENT"))
    return str(path)


def sqlite_outputs(path: str) -> list[Output]:
    with sqlite3.connect(path) as connection:
        return [Output(*row) for row in connection.execute(SQL_ROWS)]


def make_postgres(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL_TABLE.format(serial="BIGSERIAL PRIMARY KEY").encode())
    return url


def postgres_outputs(url: str) -> list[Output]:
    with psycopg.connect(url) as connection:
        return [Output(*row) for row in connection.execute(SQL_ROWS.encode())]
