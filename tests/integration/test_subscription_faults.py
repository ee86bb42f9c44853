"""Workers whose storage fails, or does not say if it has stored: nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import tailrace
from tailrace import DiskFull, Hub, OutcomeUnknown, Receipt
from tailrace.backend.contract import Transaction
from tailrace.log.schema import import_pandas_now
from tailrace.message import Range
from tailrace.subscription.shard.options import MOVES_MAX, PERMITS_AHEAD
from tailrace.subscription.store.names import dead_letter_queue, retry_queue
from tests.integration.subscribers import (
    FAILING_KEY,
    NAME,
    dead_letters,
    end,
    fails_in_one_key,
    make_hub,
    push,
    queued_twice,
    resident_bytes,
    start,
    work_in,
)
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.handler_log import HandlerLog, audit
from tests.support.processes import Report
from tests.support.waiting import until

pytestmark = pytest.mark.part("subscriptions")

OUTAGE_S = count("retry_queue_outage_s", test=2, soak=10)
OUTAGE_KEYS = count("retry_queue_outage_keys", test=200, soak=2_000)
OUTAGE_EACH = count("retry_queue_outage_each", test=15, soak=50)
UNKNOWN = count("unknown_outcomes", test=6, soak=200)
SEED = 3
CONCURRENCY = 16
GROWTH_BYTES_MAX = 64 << 20


def around_commits(
    hub: Hub,
    before: Callable[[Transaction], None],
    after: Callable[[Transaction], None] = lambda transaction: None,
) -> None:
    """Have functions called before and after each commit of this process. They may raise."""
    right = hub.backend.commit

    def commit(transaction: Transaction) -> list[Range]:
        before(transaction)
        ranges = right(transaction)
        after(transaction)
        return ranges

    hub.backend.commit = commit  # type: ignore[method-assign]


def appends_to(transaction: Transaction, *topics: str) -> bool:
    return any(partition.topic in topics for partition, _ in transaction.appends)


def work_without_retry_queue(report: Report, hub_path: Path, log_path: Path, _: int) -> None:
    """Work with a handler that fails at each first attempt. Until SIGUSR1 nothing can be appended
    to RQ. Report the growth of the memory after some seconds of that."""
    refused, available = threading.Event(), threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: available.set())

    def refuse(transaction: Transaction) -> None:
        if not available.is_set() and appends_to(transaction, retry_queue(NAME)):
            if not refused.is_set():
                refused.set()
                threading.Timer(OUTAGE_S, lambda: report(resident_bytes() - before)).start()
            raise DiskFull("the disk of the retry queue is full", "free some space")

    with tailrace.open(hub_path) as hub:
        around_commits(hub, refuse)
        import_pandas_now()  # what a worker imports is not what its messages take
        before = resident_bytes()
        work_in(hub, report, log_path, CONCURRENCY, lambda delivery: delivery.attempt == 1)


@pytest.mark.timeout(1800)
def test_a_retry_queue_that_cannot_be_written_loses_nothing_and_fills_no_memory(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    make_hub(tmp_path / "hub", partitions=1)
    log = HandlerLog(tmp_path / "log")
    with tailrace.open(tmp_path / "hub") as hub:
        receipts = push(hub, OUTAGE_KEYS, 0, OUTAGE_EACH)
        child = start(work_without_retry_queue, tmp_path / "hub", tmp_path / "log", CONCURRENCY)
        grown = child.next_report()
        backlog = hub.subscription(NAME).describe().backlog
        called = len(log.lines())
        os.kill(child.pid, signal.SIGUSR1)
        until(lambda: len(log.succeeded()) == len(receipts), within_s=900.0)
        end(child)
        twice = queued_twice(hub)
    result = audit(receipts, log)
    what = f"s of a retry queue that fails, all calls failing; the worker grew by {grown >> 20} MB"
    record_evidence("subscriptions", what, OUTAGE_S, [], int(not result.well) + len(twice))
    assert (backlog.mq, backlog.rq) == (len(receipts), 0), "nothing is acknowledged"
    assert 0 < called <= MOVES_MAX + (1 + PERMITS_AHEAD) * CONCURRENCY
    assert grown < GROWTH_BYTES_MAX
    assert result.well
    assert twice == []
    assert set(map(tuple, attempts_by_message(log).values())) == {(1, 2)}


def attempts_by_message(log: HandlerLog) -> dict[tuple[str, int], list[int]]:
    found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for line in log.lines():
        found[line.key, line.number].append(line.attempt)
    return found


def work_in_doubt(report: Report, hub_path: Path, log_path: Path, concurrency: int) -> None:
    """Work while every fourth commit with a move has an unknown outcome: half of them are stored.
    Report each."""
    chance, left = random.Random(SEED), UNKNOWN

    def doubt(transaction: Transaction, when: float) -> None:
        nonlocal left
        moves = appends_to(transaction, retry_queue(NAME), dead_letter_queue(NAME))
        if left and moves and chance.random() < when:
            left -= 1
            report("unknown")
            raise OutcomeUnknown("the commit may or may not be stored")

    with tailrace.open(hub_path) as hub:
        around_commits(hub, lambda each: doubt(each, 1 / 8), lambda each: doubt(each, 1 / 7))
        work_in(hub, report, log_path, concurrency, fails_in_one_key)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy", ["block", "continue"])
def test_commits_whose_outcome_is_unknown_move_no_message_twice(
    tmp_path: Path, policy: str, record_evidence: RecordEvidence
) -> None:
    make_hub(tmp_path / "hub", shards=2, on_dead_letter=policy)
    log, receipts = HandlerLog(tmp_path / "log"), dict[tuple[str, int], Receipt]()
    number, unknown = 1, 0
    with tailrace.open(tmp_path / "hub") as hub:
        child = start(work_in_doubt, tmp_path / "hub", tmp_path / "log", 8)
        while unknown < UNKNOWN or number < 30:
            receipts.update(push(hub, 12, number, number + 10))
            number += 10
            until(partial(done, hub, log, receipts), within_s=300.0)
            unknown += len(list(child.reports_for(0.0)))
        end(child)
        dead, twice = dead_letters(hub), queued_twice(hub)
    result = audit(receipts, log, dead)
    what = f"commits of a subscription with an unknown outcome, {policy}"
    record_evidence("subscriptions", what, unknown, [SEED], int(not result.well) + len(twice))
    assert twice == []
    assert result.well
    assert {key for key, _ in dead} == {FAILING_KEY}


def done(hub: Hub, log: HandlerLog, receipts: dict[tuple[str, int], Receipt]) -> bool:
    return len(log.succeeded() | dead_letters(hub).keys()) == len(receipts)
