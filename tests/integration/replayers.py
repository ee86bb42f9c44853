"""Processes that push to a queue, consume it and work on its replay, for tests that kill them."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import tailrace
from tailrace import Delivery, Envelope, Queue, Topic
from tests.support.counts import count
from tests.support.handler_log import HandlerLog
from tests.support.processes import Report

QUEUE = "jobs"
HANDLED = "handled"
"""The topic with one output for each message that the handler of a replay has handled."""
SEEN = "seen"
"""The topic with one output for each delivery of the live queue."""
REPLAY = "again"

HOUR_MS = 3_600_000
KEYS = 24
SKEWED_BATCH = 50
LIVE_RATE = count("queue_replay_live_rate", test=2_000, soak=10_000)
"""The number of messages a second that are pushed during the replay."""
LIVE_BATCH_MAX = 1_000


def make_hub(path: Path) -> None:
    """Create a hub with a queue of 12 shards, and the topics of outputs."""
    with tailrace.open(path, sync="none") as hub:
        hub.queue(QUEUE, int, shards=12)
        hub.create_topic(HANDLED, int)
        hub.create_topic(SEEN, int)


def push_skewed(queue: Queue[int], first: int, after: int, noon_ms: int) -> None:
    """Push these numbers of two producers in turn, the clock of one an hour behind. Both push to
    every shard. Number n is of the millisecond n after noon, or after eleven."""
    for number in range(first, after, SKEWED_BATCH):
        for name, skew_ms in (("ahead", 0), ("behind", HOUR_MS)):
            queue.push_many(
                [
                    Envelope(each, key=f"{name}{each % KEYS}", timestamp=noon_ms - skew_ms + each)
                    for each in range(number, min(after, number + SKEWED_BATCH))
                ]
            )


def keep_pushing(report: Report, hub_path: Path) -> None:
    """Push to the live queue, `LIVE_RATE` messages a second, until SIGTERM. Report the number of
    messages, and the seconds that it took."""
    over = _until_terminated()
    with tailrace.open(hub_path, sync="none") as hub:
        queue, number = hub.queue(QUEUE, int), 0
        report("started")
        start = time.monotonic()
        while not over.wait(0.01):
            due = int((time.monotonic() - start) * LIVE_RATE)
            numbers = range(number, min(due, number + LIVE_BATCH_MAX))
            if numbers:
                queue.push_many([(f"live{each % KEYS}", each) for each in numbers])
                number = numbers.stop
        took_s = time.monotonic() - start
    report((number, took_s))


def keep_consuming(report: Report, hub_path: Path) -> None:
    """Consume the live queue until SIGTERM, with one output for each message."""
    over = _until_terminated()
    with tailrace.open(hub_path, sync="none") as hub:
        seen: Topic[int] = hub.topic(SEEN, int)

        def handle(deliveries: Any) -> None:
            for each in deliveries:
                name = f"{each.key}/{each.replay}" if each.replay else each.key
                each.tx.push(seen, each.value, key=name)

        with hub.queue(QUEUE, int).tail(
            handle, guarantee="exactly-once", batch=True, concurrency=2
        ):
            report("started")
            over.wait()


def handle_replay(report: Report, hub_path: Path, log_path: Path) -> None:
    """Work on the replay with a handler until it has ended."""
    log = HandlerLog(log_path)
    with tailrace.open(hub_path, sync="none") as hub:
        handled: Topic[int] = hub.topic(HANDLED, int)

        def handle(delivery: Delivery[int]) -> None:
            time.sleep(0.0005)
            log.write(delivery, succeeded=True)
            delivery.tx.push(handled, delivery.value, key=delivery.key)

        queue = hub.queue(QUEUE, int)
        with queue.resume_replay(REPLAY, handle, guarantee="exactly-once") as replay:
            report("started")
            replay.wait()


def copy_replay(report: Report, hub_path: Path, log_path: Path) -> None:
    """Work on the replay without a handler until it has ended."""
    with (
        tailrace.open(hub_path, sync="none") as hub,
        hub.queue(QUEUE, int).resume_replay(REPLAY) as replay,
    ):
        report("started")
        replay.wait()


def _until_terminated() -> threading.Event:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    return over
