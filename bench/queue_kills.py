"""Queues under `kill -9`: what each of them loses, and what it does twice.

A consumer handles numbers one by one, each with one output, in a queue or table of the same kind.
It is killed at random instants, and another one starts in its place. At the end the outputs are
counted. Each contender does what its manual says: Redis and SQLite store output and acknowledgement
in one transaction, persist-queue acknowledges after the output, huey takes a task off before it
runs it.
"""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import huey
import persistqueue

import tailrace
from bench.measure import OURS, Scale
from bench.peers import redis
from bench.report import Goal, Row, Sense

COUNT = 3_000
KILLS = 10
TAKES_S = 0.001
"""The time that a handler takes, so that kills hit calls."""
PAUSE_S = (0.1, 0.5)
"""A consumer is killed after a random time of this range, from the first output that it adds."""
IDLE_S = 30.0
"""If no output comes for so long, what is missing is lost."""
SEED = 23

_SPAWN = multiprocessing.get_context("spawn")


def rows(scale: Scale) -> list[Row]:
    """Kill the consumers of all queues."""
    count, kills = scale.count(COUNT), max(3, int(KILLS * min(1.0, scale.size)))
    work = f"queue, {count:,} messages handled by consumers that are killed {kills} times"
    with ExitStack() as stack:
        contenders: list[_Contender] = [_Ours(), _Sqlite(), _PersistQueue(), _Huey()]
        missing: tuple[str, ...] = ()
        if redis.available():
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = stack.enter_context(redis.opened(place, redis.Durability.ALWAYS))
            port = server.client.connection_pool.connection_kwargs["port"]
            contenders.insert(1, _Redis(port))
        else:
            missing = (redis.HOW_TO_GET_IT,)
        verdicts = {each.name: _verdict(each, count, kills) for each in contenders}
    figures = [
        f"{name}: {lost:,} lost, {twice:,} twice" for name, (lost, twice) in verdicts.items()
    ]
    goal = Goal("lost or twice", sum(verdicts[OURS]), 0, Sense.AT_MOST, unit="")
    return [Row(work, tuple(figures), (goal,), missing)]


def _verdict(contender: _Contender, count: int, kills: int) -> tuple[int, int]:
    """Return how many numbers have no output, and how many have more than one."""
    instants = random.Random(SEED)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        contender.fill(place, count)
        for _ in range(kills):
            with _consumer(contender, place):
                _await_more(contender, place, count, 0)
                time.sleep(instants.uniform(*PAUSE_S))
        with _consumer(contender, place):
            while _await_more(contender, place, count, IDLE_S):
                pass
        found = Counter(contender.outputs(place))
    return count - len(found), sum(times > 1 for times in found.values())


@contextmanager
def _consumer(contender: _Contender, place: Path) -> Iterator[None]:
    """Run a consumer in another process, which is killed at the end of the block."""
    process = _SPAWN.Process(target=contender.consume, args=(place,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _await_more(contender: _Contender, place: Path, count: int, idle_s: float) -> bool:
    """Wait for another output. False if all are there, or if none comes in time."""
    before = len(contender.outputs(place))
    deadline = time.monotonic() + (idle_s or 30.0)
    while before < count and time.monotonic() < deadline:
        time.sleep(0.02)
        if len(contender.outputs(place)) > before:
            return True
    return False


class _Contender(ABC):
    """A queue of numbers, and what its consumer stores."""

    name: str

    @abstractmethod
    def fill(self, place: Path, count: int) -> None:
        """Put numbers into the queue."""

    @abstractmethod
    def consume(self, place: Path) -> None:
        """Handle numbers until the process is killed."""

    @abstractmethod
    def outputs(self, place: Path) -> list[int]:
        """Return the numbers that were stored."""


class _Ours(_Contender):
    name = OURS

    def fill(self, place: Path, count: int) -> None:
        with tailrace.open(place / "hub") as hub:
            hub.create_topic("done", int, partitions=1)
            hub.queue("jobs", int).push_many([(f"k{n % 50}", n) for n in range(count)])

    def consume(self, place: Path) -> None:
        def handle(job: tailrace.Delivery[int]) -> None:
            time.sleep(TAKES_S)
            job.tx.push("done", job.value, key=job.key)

        with (
            tailrace.open(place / "hub") as hub,
            hub.queue("jobs", int).tail(handle, guarantee="exactly-once"),
        ):
            threading.Event().wait()

    def outputs(self, place: Path) -> list[int]:
        with tailrace.open(place / "hub") as hub:
            batches = hub.topic("done", int).batches(0, 0)
            return [int(value or b"") for batch in batches for value in batch["value"].to_pylist()]


class _Redis(_Contender):
    name = "Redis Streams, AOF always"

    def __init__(self, port: int) -> None:
        self._port = port

    def _client(self) -> Any:
        return redis.client(self._port)

    def fill(self, place: Path, count: int) -> None:
        client = self._client()
        client.xgroup_create("jobs", "workers", "0", mkstream=True)
        pipeline = client.pipeline(transaction=True)
        for number in range(count):
            pipeline.xadd("jobs", {"n": number})
        pipeline.execute()

    def consume(self, place: Path) -> None:
        client, start = self._client(), "0"  # what an earlier life has read comes first
        while True:
            answer = client.xreadgroup("workers", "w", {"jobs": start}, count=16, block=100)
            found = answer[0][1] if answer else []
            if start == "0" and not found:
                start = ">"
            for id, fields in found:
                time.sleep(TAKES_S)
                pipeline = client.pipeline(transaction=True)
                pipeline.xadd("done", fields)
                pipeline.xack("jobs", "workers", id)
                pipeline.execute()

    def outputs(self, place: Path) -> list[int]:
        return [int(fields[b"n"]) for _, fields in self._client().xrange("done")]


class _Sqlite(_Contender):
    name = "raw SQLite, FULL"

    @contextmanager
    def _opened(self, place: Path) -> Iterator[sqlite3.Connection]:
        file = place / "jobs.db"
        with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute("PRAGMA synchronous = FULL")
            for table in ("jobs", "done"):
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {table}(id INTEGER PRIMARY KEY, n INTEGER)"
                )
            yield connection

    def fill(self, place: Path, count: int) -> None:
        with self._opened(place) as connection:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO jobs(n) VALUES (?)", [(n,) for n in range(count)])
            connection.execute("COMMIT")

    def consume(self, place: Path) -> None:
        with self._opened(place) as connection:
            while True:
                connection.execute("BEGIN IMMEDIATE")
                found = connection.execute("SELECT id, n FROM jobs ORDER BY id LIMIT 1").fetchone()
                if found is not None:
                    time.sleep(TAKES_S)
                    connection.execute("INSERT INTO done(n) VALUES (?)", (found[1],))
                    connection.execute("DELETE FROM jobs WHERE id = ?", (found[0],))
                connection.execute("COMMIT")

    def outputs(self, place: Path) -> list[int]:
        with self._opened(place) as connection:
            return [number for (number,) in connection.execute("SELECT n FROM done")]


class _PersistQueue(_Contender):
    name = "persist-queue"

    def fill(self, place: Path, count: int) -> None:
        jobs = persistqueue.SQLiteAckQueue(str(place / "jobs"), auto_commit=True)
        for number in range(count):
            jobs.put(number)
        jobs.close()
        self.outputs(place)

    def consume(self, place: Path) -> None:
        jobs = persistqueue.SQLiteAckQueue(str(place / "jobs"), auto_commit=True)
        done = persistqueue.SQLiteQueue(str(place / "done"), auto_commit=True)
        while True:
            number = jobs.get()
            time.sleep(TAKES_S)
            done.put(number)
            jobs.ack(number)

    def outputs(self, place: Path) -> list[int]:
        done = persistqueue.SQLiteQueue(str(place / "done"), auto_commit=True)
        found = [row["data"] for row in done.queue()]
        done.close()
        return found


class _Huey(_Contender):
    name = "huey"

    def _tasks(self, place: Path) -> tuple[Any, Any]:
        tasks: Any = huey.SqliteHuey(filename=str(place / "huey.db"), fsync=True)

        @tasks.task()  # type: ignore[untyped-decorator]
        def handle(number: int) -> None:
            time.sleep(TAKES_S)
            with closing(sqlite3.connect(place / "done.db", timeout=30)) as done, done:
                done.execute("INSERT INTO done VALUES (?)", (number,))

        return tasks, handle

    def fill(self, place: Path, count: int) -> None:
        with closing(sqlite3.connect(place / "done.db")) as done, done:
            done.execute("CREATE TABLE done(n INTEGER)")
        _, handle = self._tasks(place)
        for number in range(count):
            handle(number)

    def consume(self, place: Path) -> None:
        tasks, _ = self._tasks(place)
        while True:
            task = tasks.dequeue()
            if task is not None:
                tasks.execute(task)

    def outputs(self, place: Path) -> list[int]:
        with closing(sqlite3.connect(place / "done.db", timeout=30)) as done:
            return [number for (number,) in done.execute("SELECT n FROM done")]
