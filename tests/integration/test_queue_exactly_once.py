"""Exactly once: one output for each message, although consumers are killed and messages fail."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace import Delivery, SqlEffects
from tests.integration.queue_consumers import (
    NAME,
    Handler,
    Output,
    await_consumed,
    consume,
    consumers,
    copy,
    copy_all,
    fill,
    insert,
    insert_all,
    judge,
    kill_at_random,
    make_postgres,
    make_queue,
    make_sqlite,
    postgres_outputs,
    sqlite_outputs,
    topic_outputs,
)
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report, Stopped, await_stop
from tests.support.servers.postgres import own_server
from tests.support.waiting import in_thread

pytestmark = pytest.mark.part("queues")

MESSAGES = count("queue_messages", test=3_000, soak=100_000)
KILLS = count("queue_kills", test=4, soak=30)
FROZEN_ROUNDS = count("queue_frozen_rounds", test=2, soak=50)
FROZEN_S = 20.0
SEED = 14


def prove(
    hub_path: Path,
    handler: Handler,
    outputs: Callable[[], list[Output]],
    record: Callable[[int], None],
    meanwhile: Callable[[], None] = lambda: None,
    **options: Any,
) -> None:
    """Consume with two processes that are killed, while the topic is scaled; then judge."""
    options |= {"guarantee": "exactly-once"}
    with tailrace.open(hub_path) as hub:
        queue = hub.queue(NAME, int)

        def push_some(kill: int) -> None:
            if kill == KILLS // 2:
                queue.topic.scale(24)
            fill(queue, kill * MESSAGES // KILLS, (kill + 1) * MESSAGES // KILLS)

        start = partial(Child, consume, hub_path, handler, **options)
        with consumers(2, hub_path, handler, **options) as children:
            other = in_thread(meanwhile)
            kill_at_random(children, KILLS, SEED, start, push_some)
            other.join(120)
            stats = await_consumed(queue)
        verdict = judge(outputs(), MESSAGES)
        final = queue.stats()
    record(verdict.violations + (not final.conserved))
    assert verdict == ([], [], [])
    assert (stats.total.acked, stats.total.dead) == (MESSAGES, 0)
    assert final.conserved, final.total


def pushed_outputs(hub_path: Path) -> list[Output]:
    with tailrace.open(hub_path) as hub:
        return topic_outputs(hub)


@pytest.mark.timeout(3600)
def test_a_handler_that_pushes_has_one_output_for_each_message(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    make_queue(tmp_path / "hub")

    what = f"kill -9 of consumers, {MESSAGES:,} messages exactly once into a topic"
    record = partial(record_evidence, "queues", what, KILLS, [SEED])
    prove(tmp_path / "hub", copy, partial(pushed_outputs, tmp_path / "hub"), record)


@pytest.mark.timeout(3600)
def test_a_handler_of_batches_that_pushes_has_one_output_for_each_message(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    make_queue(tmp_path / "hub")

    what = f"kill -9 of consumers, {MESSAGES:,} messages in batches exactly once into a topic"
    record = partial(record_evidence, "queues", what, KILLS, [SEED])
    hub = tmp_path / "hub"
    prove(hub, copy_all, partial(pushed_outputs, hub), record, batch=True, batch_size=50)


@pytest.mark.timeout(3600)
def test_a_handler_of_batches_that_inserts_has_one_row_for_each_message(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    make_queue(tmp_path / "hub")
    database = make_sqlite(tmp_path / "done.db")
    what = f"kill -9 of consumers, {MESSAGES:,} messages in batches exactly once into SQLite"
    record = partial(record_evidence, "queues", what, KILLS, [SEED])
    outputs = partial(sqlite_outputs, database)
    hub = tmp_path / "hub"
    prove(hub, insert_all, outputs, record, database=database, batch=True, batch_size=50)


@pytest.mark.timeout(3600)
def test_a_handler_that_inserts_into_sqlite_has_one_row_for_each_message(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    make_queue(tmp_path / "hub")
    database = make_sqlite(tmp_path / "done.db")
    what = f"kill -9 of consumers, {MESSAGES:,} messages exactly once into SQLite"
    record = partial(record_evidence, "queues", what, KILLS, [SEED])
    prove(tmp_path / "hub", insert, lambda: sqlite_outputs(database), record, database=database)


@pytest.mark.timeout(3600)
def test_a_handler_that_inserts_into_postgres_has_one_row_for_each_message(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    """The server crashes and starts again meanwhile, twice."""
    make_queue(tmp_path / "hub")
    with own_server() as server:
        database = make_postgres(server.url)

        def restart_twice() -> None:
            for _ in range(2):
                time.sleep(1.0)
                server.stop(signal.SIGQUIT)
                server.start()

        what = f"kill -9 of consumers, {MESSAGES:,} messages exactly once into PostgreSQL"
        record = partial(record_evidence, "queues", what, KILLS, [SEED])
        prove(
            tmp_path / "hub",
            insert,
            lambda: postgres_outputs(database),
            record,
            restart_twice,
            database=database,
        )


def insert_and_stop(delivery: Delivery[int], report: Report, stopping: list[int]) -> None:
    """Insert a row; at a number that is to stop the process, stop before the commit."""
    insert(delivery)
    if delivery.value in stopping:
        stopping.remove(delivery.value)
        report(Stopped("before the commit", os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)


def consume_and_stop(report: Report, hub_path: Path, database: str, number: int) -> None:
    """Consume, and stop the process once within a call, between its SQL writes and its commit."""
    handler = partial(insert_and_stop, report=report, stopping=[number])
    with tailrace.open(hub_path) as hub:
        effects = SqlEffects(database)
        consumer = hub.queue(NAME, int).tail(
            handler, guarantee="exactly-once", effects=effects, concurrency=1
        )
        consumer.wait(600)


@contextmanager
def continued_after(pid: int, seconds: float) -> Iterator[None]:
    """Continue a stopped process at the end of the block, or after some time: if another of its
    threads was within a commit of the hub, it holds up the commits of all."""
    timer = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(3600)
def test_a_consumer_that_is_frozen_before_its_commit_stores_nothing_late(
    tmp_path: Path, postgres_url: str, record_evidence: RecordEvidence
) -> None:
    make_queue(tmp_path / "hub", shards=2)
    database = make_postgres(postgres_url)
    number = 0
    with tailrace.open(tmp_path / "hub") as hub:
        queue = hub.queue(NAME, int)
        for _ in range(FROZEN_ROUNDS):
            first, number = number, number + 20
            frozen = Child(consume_and_stop, tmp_path / "hub", database, first + 7)
            fill(queue, first, number)
            stopped = await_stop(frozen)
            with consumers(
                1, tmp_path / "hub", insert, database=database, guarantee="exactly-once"
            ):
                with continued_after(stopped.pid, FROZEN_S):
                    await_consumed(queue)
                fill(queue, number, number + 20)
                number += 20
                await_consumed(queue)
                list(frozen.kill())
        verdict, final = judge(postgres_outputs(database), number), queue.stats()
    what = "consumers stopped between SQL writes and commit, and continued after a takeover"
    record_evidence("queues", what, FROZEN_ROUNDS, [], verdict.violations)
    assert verdict == ([], [], [])
    assert final.conserved, final.total


@pytest.mark.timeout(600)
def test_a_failure_of_the_storage_in_the_middle_doubles_and_loses_nothing(tmp_path: Path) -> None:
    """The files of the hub cannot be written for a while: the disk is full for one process."""
    make_queue(tmp_path / "hub")
    failing_s = count("queue_outage_s", test=2, soak=10)
    with tailrace.open(tmp_path / "hub") as hub:
        queue, over = hub.queue(NAME, int), threading.Event()
        backend: Any = hub.backend
        commit, refused = backend.commit, list[float]()
        until_s = time.monotonic() + 0.3 + failing_s

        def fail(transaction: Any) -> Any:
            if transaction.fence is not None and until_s - failing_s < time.monotonic() < until_s:
                refused.append(time.monotonic())
                raise tailrace.BackendUnavailable("the storage does not answer", "try again")
            return commit(transaction)

        backend.commit = fail
        with queue.tail(copy, guarantee="exactly-once") as consumer:
            for number in range(0, 1000, 50):
                fill(queue, number, number + 50)
                over.wait(0.05 * failing_s)
            await_consumed(queue, 120)
            assert consumer.stats().succeeded >= 1000
        verdict, final = judge(topic_outputs(hub), 1000), queue.stats()
    assert refused
    assert verdict == ([], [], [])
    assert final.conserved, final.total
