"""Subscriptions with many messages: a key with most of them, many keys, and many followers."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import tailrace
from tailrace import Delivery, Hub, Retry
from tailrace.subscription.store.names import retry_queue
from tests.integration.subscribers import NAME, TOPIC, make_hub, resident_bytes
from tests.support.counts import count, soaking
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report
from tests.support.waiting import until

pytestmark = pytest.mark.part("subscriptions")

HOT = count("hot_key_messages", test=9_000, soak=90_000)
CALL_S = 0.001
"""The time that a call takes, as that of a service in the same data centre."""
COLD_KEYS = 1_000
COLD_EACH = max(1, HOT // 9 // COLD_KEYS)
HOT_RATIO_MAX = 1.3 if soaking() else 3.0
"""A test run shares its processor with others."""
KEYS = count("healthy_keys", test=30_000, soak=1_000_000)
FOLLOWERS = count("parked_followers", test=20_000, soak=500_000)
PUSHED_AT_ONCE = 10_000
GROWTH_BYTES_MAX = 100 << 20
FLAT_BYTES_MAX = 24 << 20
"""The growth of a worker between a tenth of the keys and all of them: less than 30 bytes for each
of a million."""
LATE_S = 2.0 if soaking() else 20.0
TAKEOVER_S = 3.0 if soaking() else 20.0


def push_all(hub: Hub, pairs: list[tuple[str, int]]) -> None:
    topic = hub.topic(TOPIC, int)
    for first in range(0, len(pairs), PUSHED_AT_ONCE):
        topic.push_many(pairs[first : first + PUSHED_AT_ONCE])


def seconds_of_cold_keys(directory: Path, pairs: list[tuple[str, int]], cold: int) -> float:
    """Return how long a new subscription takes for the messages of the other keys."""
    make_hub(directory, partitions=1)
    done, over, mutex = 0, threading.Event(), threading.Lock()

    def handle(delivery: Delivery[int]) -> None:
        nonlocal done
        time.sleep(CALL_S)
        if delivery.key != "hot":
            with mutex:
                done += 1
            if done == cold:
                over.set()

    with tailrace.open(directory) as hub:
        push_all(hub, pairs)
        began = time.perf_counter()
        with hub.subscription(NAME).start(handle, type=int):
            assert over.wait(600)
            return time.perf_counter() - began


@pytest.mark.timeout(1800)
def test_a_key_with_most_messages_hardly_delays_the_others(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    cold = [(f"k{key}", number) for number in range(COLD_EACH) for key in range(COLD_KEYS)]
    step = HOT // len(cold)
    mixed = [
        pair
        for number, other in enumerate(cold)
        for pair in (*(("hot", number * step + hot) for hot in range(step)), other)
    ]
    ratios = []
    for turn in range(3):
        alone_s = seconds_of_cold_keys(tmp_path / f"alone{turn}", cold, len(cold))
        mixed_s = seconds_of_cold_keys(tmp_path / f"mixed{turn}", mixed, len(cold))
        ratios.append(mixed_s / alone_s)
    ratio = statistics.median(ratios)
    what = f"messages of a hot key; 1,000 other keys take {ratio:.2f} of their time alone"
    record_evidence("subscriptions", what, HOT, [], int(ratio > HOT_RATIO_MAX))
    assert ratio <= HOT_RATIO_MAX


def work_and_weigh(report: Report, hub_path: Path, messages: int) -> None:
    """Handle messages with success, and report the growth of the memory when a tenth of them was
    handled, and when all were."""
    done, over, mutex, grown = 0, threading.Event(), threading.Lock(), list[int]()

    def handle(delivery: Delivery[int]) -> None:
        nonlocal done
        with mutex:
            done += 1
            if done in (messages // 10, messages):
                grown.append(resident_bytes() - before)
            if done >= messages:
                over.set()

    with tailrace.open(hub_path) as hub:
        before = resident_bytes()
        with hub.subscription(NAME).start(handle, type=int, concurrency=16):
            assert over.wait(1500)
            report(tuple(grown))


@pytest.mark.timeout(1800)
def test_many_keys_that_succeed_leave_nothing_behind(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    make_hub(tmp_path / "hub")
    with tailrace.open(tmp_path / "hub") as hub:
        push_all(hub, [(f"k{key}", 0) for key in range(KEYS)])
        child = Child(work_and_weigh, tmp_path / "hub", KEYS)
        tenth, whole = child.next_report(1600.0)
        list(child.rest())
        table = hub.backend.table
        attempts = list(table.scan(f"subscription-attempts/{NAME}", b""))
        described = hub.subscription(NAME).describe()
    flat, small = whole - tenth < FLAT_BYTES_MAX, whole < GROWTH_BYTES_MAX
    what = (
        f"keys that succeeded; the worker grew by {whole >> 20} MB, by {tenth >> 20} MB at a tenth"
    )
    record_evidence("subscriptions", what, KEYS, [], int(not (flat and small)))
    assert attempts == []
    assert (described.backlog.mq, described.backlog.rq, described.backlog.dlq) == (0, 0, 0)
    assert flat, f"{tenth:,} bytes at a tenth, {whole:,} at the end"
    assert small, f"{whole:,} bytes"


class Overtaken(NamedTuple):
    """How long a new owner took until its first call, how long a message that failed once then
    waited for its success, and the growth of the memory."""

    takeover_s: float
    delay_s: float
    grown: int


def overtake(report: Report, hub_path: Path) -> None:
    """Take a shard over. Messages of the key "parked" fail for ever, that of "other" once."""
    over, failed_at = threading.Event(), list[float]()

    def handle(delivery: Delivery[int]) -> None:
        if delivery.key == "parked":
            raise ConnectionError("parked")
        if delivery.attempt == 1:
            failed_at.append(time.monotonic())
            raise ConnectionError("once")
        over.set()

    with tailrace.open(hub_path) as hub:
        before, began = resident_bytes(), time.monotonic()
        with hub.subscription(NAME).start(handle, type=int, concurrency=16):
            assert over.wait(500)
            delay_s = time.monotonic() - failed_at[0]
            report(Overtaken(failed_at[0] - began, delay_s, resident_bytes() - before))


@pytest.mark.timeout(1800)
def test_followers_of_a_parked_key_neither_delay_another_key_nor_fill_the_memory(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    make_hub(tmp_path / "hub", partitions=1, retry=Retry(None, first="10h", max="10h"))
    with tailrace.open(tmp_path / "hub") as hub:
        push_all(hub, [("parked", number) for number in range(FOLLOWERS + 1)])
        queue = hub.topic(retry_queue(NAME))
        with hub.subscription(NAME).start(refuse, type=int):
            until(lambda: sum(queue.storage_topics[0].ends) > FOLLOWERS, within_s=1500.0)
        hub.subscription(NAME).update(retry=Retry(None, first="100ms", max="100ms"))
        hub.topic(TOPIC, int).push(0, key="other")
        child = Child(overtake, tmp_path / "hub")
        takeover_s, delay_s, grown = child.next_report(600.0)
        list(child.rest())
    what = (
        f"followers of a parked key; takeover {takeover_s:.1f} s, "
        f"another key waits {delay_s:.1f} s, {grown >> 20} MB"
    )
    wrong = takeover_s > TAKEOVER_S or delay_s > LATE_S or grown > GROWTH_BYTES_MAX
    record_evidence("subscriptions", what, FOLLOWERS, [], int(wrong))
    assert takeover_s < TAKEOVER_S
    assert delay_s < LATE_S
    assert grown < GROWTH_BYTES_MAX


def refuse(delivery: Delivery[int]) -> None:
    raise ConnectionError("parked")
