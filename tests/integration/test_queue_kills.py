"""Queues whose processes are killed, joined, left and paused: nothing is lost, order holds."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace import Delivery, Queue
from tests.integration.queue_consumers import (
    KEYS,
    NAME,
    OUTPUT,
    QUICKLY,
    await_consumed,
    consume,
    consumers,
    copy,
    fill,
    judge,
    kill_at_random,
    make_queue,
    topic_outputs,
)
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report
from tests.support.waiting import until

pytestmark = pytest.mark.part("queues")

KILLS = count("queue_kills", test=4, soak=30)
INSTANTS = count("queue_push_kills", test=6, soak=200)
BACKLOG = count("queue_backlog", test=6_000, soak=500_000)
MOST_CONSUMERS = count("queue_consumers", test=6, soak=14)
STANDING_BY = 2
POISONED = count("queue_poisoned", test=3_000, soak=100_000)
SEED = 15


class NumberLog:
    """A file to which handlers append the numbers that they are called with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def __call__(self, delivery: Delivery[int]) -> None:
        with self.path.open("ab", buffering=0) as lines:
            lines.write(f"{delivery.value}\n".encode())
        time.sleep(0.002)

    def numbers(self) -> list[int]:
        return [int(line) for line in self.path.read_text().splitlines()]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("options", [{}, {"batch": True, "batch_size": 5}], ids=["one", "batch"])
def test_no_message_is_handled_twice_at_most_once_and_what_was_skipped_is_counted(
    tmp_path: Path, options: dict[str, Any], record_evidence: RecordEvidence
) -> None:
    make_queue(tmp_path / "hub")
    log, many = NumberLog(tmp_path / "log"), KILLS * 400
    handler: Any = partial(log_all, log) if options else log
    options = options | {"acking": False}
    with tailrace.open(tmp_path / "hub") as hub:
        queue = hub.queue(NAME, int)
        start = partial(Child, consume, tmp_path / "hub", handler, **options)
        with consumers(2, tmp_path / "hub", handler, **options) as children:
            kill_at_random(
                children,
                KILLS,
                SEED,
                start,
                lambda kill: fill(queue, kill * many // KILLS, (kill + 1) * many // KILLS),
            )
            await_consumed(queue)
        total, called = queue.stats().total, Counter(log.numbers())
        conserved = queue.stats().conserved
    twice = [number for number, times in called.items() if times > 1]
    what = f"kill -9 of consumers at most once, {'batches' if len(options) > 1 else 'one by one'}"
    record_evidence("queues", what, KILLS, [SEED], len(twice))
    assert twice == []
    assert (total.acked, conserved) == (many, True)
    assert many - len(called) <= total.skipped < many


def log_all(log: NumberLog, batch: list[Delivery[int]]) -> None:
    for each in batch:
        log(each)


def push_ten_thousand(report: Report, hub_path: Path, first: int) -> None:
    with tailrace.open(hub_path) as hub:
        queue = hub.queue(NAME, int)
        pairs = [(f"k{number}", number) for number in range(first, first + 10_000)]
        report("ready")
        queue.push_many(pairs)
        report("pushed")
        time.sleep(60)


@pytest.mark.timeout(3600)
def test_a_push_of_ten_thousand_that_is_killed_stores_all_or_none(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    make_queue(tmp_path / "hub")
    instants, partly, whole = random.Random(SEED), 0, 0
    with tailrace.open(tmp_path / "hub") as hub:
        queue, before = hub.queue(NAME, int), 0
        for _ in range(INSTANTS):
            child = Child(push_ten_thousand, tmp_path / "hub", 0)
            child.next_report()
            time.sleep(instants.uniform(0.0, 0.25))
            list(child.kill())
            inserted = queue.stats().total.inserted
            partly += inserted - before not in (0, 10_000)
            whole += inserted - before == 10_000
            before = inserted
        stats = queue.stats()
    record_evidence("queues", "kill -9 within push_many of 10,000", INSTANTS, [SEED], partly)
    assert partly == 0
    assert stats.total.ready == 10_000 * whole
    assert stats.conserved


@pytest.mark.timeout(3600)
def test_consumers_come_and_go_during_a_backlog(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    """From two to more than the shards, who stand by, and back to one."""
    shards = MOST_CONSUMERS - STANDING_BY
    make_queue(tmp_path / "hub", shards=shards)
    options: dict[str, Any] = {"guarantee": "exactly-once", "concurrency": 4}
    with tailrace.open(tmp_path / "hub") as hub:
        queue = hub.queue(NAME, int)
        fill(queue, 0, BACKLOG // 2)
        with consumers(1, tmp_path / "hub", copy, **options):
            with consumers(1, tmp_path / "hub", copy, **options):
                until(lambda: queue.stats().consumers == 2, within_s=120)
                with consumers(MOST_CONSUMERS - 2, tmp_path / "hub", copy, **options):
                    until(lambda: queue.stats().standby == STANDING_BY, within_s=120)
                    balanced = queue.rebalance(timeout="60s")
                    assert Counter(map(len, balanced.shards.values())) == {
                        0: STANDING_BY,
                        1: shards,
                    }
                    fill(queue, BACKLOG // 2, BACKLOG)
            until(lambda: queue.stats().consumers == 1, within_s=120)
            stats = await_consumed(queue)
        verdict, final = judge(topic_outputs(hub), BACKLOG), queue.stats()
    what = (
        f"messages while consumers grow from 2 to {MOST_CONSUMERS} on {shards} shards"
        " and shrink to 1"
    )
    record_evidence("queues", what, BACKLOG, [], verdict.violations)
    assert verdict == ([], [], [])
    assert (stats.total.acked, final.conserved) == (BACKLOG, True)


def hold(delivery: Delivery[int], path: Path) -> None:
    """Work until a file appears, and push."""
    path.with_suffix(f".{delivery.value}").touch()
    until(path.exists)
    copy(delivery)


def held(directory: Path) -> int:
    return len(list(directory.glob("go.*")))


@pytest.mark.timeout(300)
def test_a_pause_that_drains_waits_for_calls_in_all_processes(tmp_path: Path) -> None:
    make_queue(tmp_path / "hub", shards=4)
    go = tmp_path / "go"
    with tailrace.open(tmp_path / "hub") as hub:
        queue = hub.queue(NAME, int)
        handler = partial(hold, path=go)
        with consumers(
            2, tmp_path / "hub", handler, guarantee="exactly-once", concurrency=2
        ) as children:
            until(lambda: queue.rebalance().balanced)
            fill(queue, 0, 200)
            until(lambda: held(tmp_path) == 4)
            assert not queue.pause(drain=True, timeout="500ms"), "calls are in flight"
            list(children[0].kill())
            assert not queue.pause(drain=True, timeout="500ms"), "those of the other process"
            go.touch()
            assert queue.pause(drain=True, timeout="60s")
            stats = queue.stats()
            assert stats.total.in_flight == 0
            assert stats.conserved
            called = held(tmp_path)
            time.sleep(0.5)
            assert held(tmp_path) == called < 200
            queue.play()
            await_consumed(queue)
        assert judge(topic_outputs(hub), 200) == ([], [], [])
        assert queue.stats().conserved


@pytest.mark.timeout(300)
def test_a_pause_with_work_in_flight_survives_a_restart_of_everything(tmp_path: Path) -> None:
    make_queue(tmp_path / "hub", shards=4)
    go, options = tmp_path / "go", {"guarantee": "exactly-once", "concurrency": 2}
    handler = partial(hold, path=go)
    with tailrace.open(tmp_path / "hub") as hub:
        queue = hub.queue(NAME, int)
        fill(queue, 0, 100)
        with consumers(1, tmp_path / "hub", handler, **options) as children:
            until(lambda: held(tmp_path) == 2)
            assert queue.pause()
            list(children[0].kill())
    go.touch()
    with tailrace.open(tmp_path / "hub") as hub:
        queue = hub.queue(NAME, int)
        before = held(tmp_path)
        with consumers(1, tmp_path / "hub", handler, **options):
            until(lambda: queue.rebalance().balanced)
            assert queue.pause(drain=True, timeout="60s")
            fill(queue, 100, 120)
            time.sleep(0.5)
            assert held(tmp_path) == before
            assert topic_outputs(hub) == []
            assert queue.play()
            await_consumed(queue)
        assert judge(topic_outputs(hub), 120) == ([], [], [])
        assert queue.stats().conserved


def fail_on_poison(delivery: Delivery[int]) -> None:
    if delivery.value % 1000 == 999:
        raise ValueError("poison")
    delivery.tx.push(OUTPUT, delivery.value, key=delivery.key)


@pytest.mark.timeout(1800)
def test_a_poison_message_per_thousand_is_a_dead_letter_with_its_key_behind_it(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    make_queue(tmp_path / "hub")
    with tailrace.open(tmp_path / "hub") as hub:
        queue = hub.queue(NAME, int)
        fill_with_keys(queue, POISONED)
        start = partial(Child, consume, tmp_path / "hub", fail_on_poison, guarantee="exactly-once")
        with consumers(2, tmp_path / "hub", fail_on_poison, guarantee="exactly-once") as children:
            kill_at_random(children, 2, SEED, start)
            total = await_consumed(queue).total
        outputs, final = [number for _, number in topic_outputs(hub)], queue.stats()
        letters = queue.dead_letters.list(limit=POISONED)
        made = queue.dead_letters.discard(reason="known poison", all=True)
        with queue.tail(copy, guarantee="exactly-once"):
            until(lambda: not queue.dead_letters.is_pending(made))
            await_consumed(queue)
        discarded = queue.stats()
    poison = set(range(999, POISONED, 1000))
    wrong = len(outputs) - len(set(outputs)) + len(poison & set(outputs))
    record_evidence("queues", "messages with a poison per thousand", POISONED, [SEED], wrong)
    assert sorted(outputs) == sorted(set(range(POISONED)) - poison)
    assert (total.dead, total.acked) == (len(poison), POISONED - len(poison))
    assert {letter.attempts for letter in letters} == {QUICKLY.attempts}
    assert {len(letter.failures) for letter in letters} == {QUICKLY.attempts}
    assert all("in fail_on_poison" in letter.traceback for letter in letters)
    assert final.conserved
    assert discarded.total.discarded == len(poison)
    assert discarded.conserved


def fill_with_keys(queue: Queue[int], count: int) -> None:
    """Push numbers, so that no other message follows a poison one of its key."""
    for first in range(0, count, 5_000):
        numbers = range(first, min(count, first + 5_000))
        queue.push_many([(f"p{n}" if n % 1000 == 999 else f"k{n % KEYS}", n) for n in numbers])
