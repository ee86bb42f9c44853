"""Queues: pushing messages and handling each of them, with one output, durably.

Each turn pushes the messages, and then handles them all. What a handler of a peer promises differs.
Redis and SQLite store output and acknowledgement in one transaction, as Tailrace does.
persist-queue and huey handle one message at a time, at least and at most once.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import huey
import persistqueue

import tailrace
from bench import payloads
from bench.measure import OURS, Scale, Timer, Turn, take_turns
from bench.peers import redis
from bench.report import Goal, Row, Sense, against, figures_of

COUNT = 100_000
FEW = 1_000
"""Peers without batches do less: they are ten times slower."""
BATCH = 1_000
VALUE_BYTES = 100
REDIS = "Redis Streams, AOF always"
SQLITE = "raw SQLite, FULL"
PERSIST_QUEUE = "persist-queue"
HUEY = "huey"
GROWTH_MOST = 1.3
POISON = b"poison"
POISON_EVERY = 1_000
POISON_COUNT = 20_000

TIME_REASON = (
    "more than half of the time is handling, where the worker's Python counts and syncs hardly do;"
    " the rest is pushing, which syncs twelve shards and the database for each batch"
)


def rows(scale: Scale) -> list[Row]:
    """Measure queues."""
    return [_exactly_once(scale), _backlog(scale), _poison(scale)]


def _exactly_once(scale: Scale) -> Row:
    work = "queue, exactly once into a topic, batches of 1000, synced"
    count = scale.count(COUNT)
    contenders: dict[str, Turn] = {OURS: _ours(count), SQLITE: _sqlite(count)}
    missing: tuple[str, ...] = ()
    if redis.available():
        contenders[REDIS] = _redis(count)
    else:
        missing = (redis.HOW_TO_GET_IT,)
    contenders[PERSIST_QUEUE] = _persist_queue(scale.count(FEW))
    contenders[HUEY] = _huey(scale.count(FEW))
    rates = take_turns(work, contenders, scale.rounds)
    goals = [against(rates, SQLITE, 1.0, reason=TIME_REASON)]
    if REDIS in contenders:
        goals.append(against(rates, REDIS, 3.0, reason=TIME_REASON))
    goals += [against(rates, PERSIST_QUEUE, 1.0), against(rates, HUEY, 1.0)]
    return Row(work, figures_of(rates, "messages"), tuple(goals), missing)


def _backlog(scale: Scale) -> Row:
    """Compare handling messages at a large and at a small backlog."""
    work = f"handle {BATCH:,} messages of a queue at a large backlog against a small one"
    large, small = 100 * scale.count(3_000), max(BATCH, scale.count(3_000))
    few, many = f"backlog of {small:,}", f"backlog of {large:,}"
    contenders = {many: _some_of(large), few: _some_of(small)}
    rates = take_turns(work, contenders, scale.rounds)
    growth = 1 / rates.ratio(many, few)
    goal = Goal("time for one", growth, GROWTH_MOST, Sense.AT_MOST)
    return Row(work, figures_of(rates, "messages"), (goal,))


def _poison(scale: Scale) -> Row:
    """Compare the rate of healthy keys with and without messages that always fail."""
    work = f"handle messages one by one, one in {POISON_EVERY:,} fails at each of its 3 attempts"
    count = scale.count(POISON_COUNT)
    clean, poisoned = "without poison", "with poison"
    contenders = {poisoned: _healthy(count, poison=True), clean: _healthy(count, poison=False)}
    rates = take_turns(work, contenders, scale.rounds)
    goal = Goal("against no poison", rates.ratio(poisoned, clean), 0.9)
    return Row(work, figures_of(rates, "messages"), (goal,))


def _healthy(count: int, *, poison: bool) -> Turn:
    """Handle all messages that do not fail. The others have keys of their own."""

    def turn(directory: Path, timer: Timer) -> int:
        handled = _Countdown(count)

        def handle(job: tailrace.Delivery[bytes]) -> None:
            if job.data == POISON:
                raise ValueError("poison")
            handled.add(1)

        logging.getLogger("tailrace.subscription").setLevel(logging.CRITICAL)
        with tailrace.open(directory / "hub", sync="none") as hub:
            jobs = hub.queue("jobs", bytes, retry=tailrace.Retry(3, first="50ms", max="50ms"))
            for number, batch in enumerate(_messages(count)):
                extra = [(b"poison %d" % number, POISON)] if poison else []
                jobs.push_many(batch + extra * (BATCH // POISON_EVERY))
            with timer.running(), jobs.tail(handle):
                handled.wait()
        return count

    return turn


def _messages(count: int) -> Iterator[list[tuple[bytes, bytes]]]:
    pairs = payloads.pairs(BATCH, VALUE_BYTES)
    for start in range(0, count, BATCH):
        yield pairs[: min(BATCH, count - start)]


def _ours(count: int) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        handled = _Countdown(count)

        def handle(jobs: list[tailrace.Delivery[bytes]]) -> None:
            jobs[0].tx.push_many("done", [(job.key_bytes, job.data) for job in jobs])
            handled.add(len(jobs))

        with tailrace.open(directory / "hub", sync="batch") as hub:
            hub.create_topic("done", bytes)
            jobs = hub.queue("jobs", bytes)
            with timer.running():
                for batch in _messages(count):
                    jobs.push_many(batch)
                with jobs.tail(
                    handle, guarantee="exactly-once", batch=True, batch_size=BATCH, concurrency=2
                ):
                    handled.wait()
        return count

    return turn


def _some_of(backlog: int) -> Turn:
    """Handle some messages of a queue that has many."""

    def turn(directory: Path, timer: Timer) -> int:
        handled = _Countdown(BATCH)
        with tailrace.open(directory / "hub", sync="none") as hub:
            jobs = hub.queue("jobs", bytes)
            for batch in _messages(backlog):
                jobs.push_many(batch)
            with timer.running():
                consumer = jobs.tail(lambda job: handled.add(1))
                handled.wait()
            consumer.shutdown()
        return BATCH

    return turn


class _Countdown:
    """Counts what several threads have handled, and waits for all of it."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._changed = threading.Condition()

    def add(self, handled: int) -> None:
        with self._changed:
            self._left -= handled
            if self._left <= 0:
                self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left <= 0, 300), "the queue stands still"


def _redis(count: int) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        with redis.opened(directory, redis.Durability.ALWAYS) as (client, _), timer.running():
            client.xgroup_create("log", "workers", "0", mkstream=True)
            for batch in _messages(count):
                redis.add(client, batch)
            left = count
            while left:
                ((_, found),) = client.xreadgroup("workers", "w", {"log": ">"}, count=BATCH)
                pipeline = client.pipeline(transaction=True)
                for _, fields in found:
                    pipeline.xadd("done", fields)
                pipeline.xack("log", "workers", *(id for id, _ in found))
                pipeline.execute()
                left -= len(found)
        return count

    return turn


def _sqlite(count: int) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        with _opened(directory) as connection, timer.running():
            for batch in _messages(count):
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT INTO jobs(key, value) VALUES (?, ?)", batch)
                connection.execute("COMMIT")
            left = count
            while left:
                connection.execute("BEGIN IMMEDIATE")
                query = f"SELECT id, key, value FROM jobs ORDER BY id LIMIT {BATCH}"
                found = connection.execute(query).fetchall()
                outputs = [(key, value) for _, key, value in found]
                connection.executemany("INSERT INTO done(key, value) VALUES (?, ?)", outputs)
                connection.execute("DELETE FROM jobs WHERE id <= ?", (found[-1][0],))
                connection.execute("COMMIT")
                left -= len(found)
        return count

    return turn


@contextmanager
def _opened(directory: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(directory / "jobs.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = FULL")
        for table in ("jobs", "done"):
            connection.execute(
                f"CREATE TABLE {table}(id INTEGER PRIMARY KEY, key BLOB, value BLOB)"
            )
        yield connection


def _persist_queue(count: int) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        jobs = persistqueue.SQLiteAckQueue(str(directory / "jobs"), auto_commit=True)
        done = persistqueue.SQLiteQueue(str(directory / "done"), auto_commit=True)
        with timer.running():
            for batch in _messages(count):
                for pair in batch:
                    jobs.put(pair)
            for _ in range(count):
                pair = jobs.get()
                done.put(pair)
                jobs.ack(pair)
        jobs.close()
        done.close()
        return count

    return turn


def _huey(count: int) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        tasks: Any = huey.SqliteHuey(filename=str(directory / "huey.db"), fsync=True)
        done = persistqueue.SQLiteQueue(str(directory / "done"), auto_commit=True)

        handle = tasks.task()(done.put)

        with timer.running():
            for batch in _messages(count):
                for _, value in batch:
                    handle(value)
            for _ in range(count):
                tasks.execute(tasks.dequeue())
        done.close()
        tasks.storage.close()
        return count

    return turn
