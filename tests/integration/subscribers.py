"""Worker processes of a subscription that fail as told, for tests that kill and stop them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import tailrace
from tailrace import Delivery, Hub, Receipt, Retry
from tailrace.delivery.dead_letters.letter import ERROR, POSITION
from tailrace.message import Message
from tailrace.subscription.store.names import dead_letter_queue, retry_queue
from tests.support.handler_log import HandlerLog
from tests.support.processes import Child, Report
from tests.support.topics import all_messages

NAME = "crm"
TOPIC = "orders"
QUICKLY = Retry(3, first="20ms", max="40ms")

FAILS_TWICE_EVERY = 5
FAILS_ALWAYS_EVERY = 23


FAILING_KEY = "k0"

Work: TypeAlias = Callable[[Report, Path, Path, int], None]
"""What a worker process does, given a hub, the log of its handler, and its concurrency."""


def fails(delivery: Delivery[int]) -> bool:
    """True if an attempt fails: every fifth message fails twice, every 23rd always."""
    number = delivery.value
    if number % FAILS_ALWAYS_EVERY == 0:
        return True
    return number % FAILS_TWICE_EVERY == 0 and delivery.attempt <= 2


def fails_in_one_key(delivery: Delivery[int]) -> bool:
    """True if an attempt fails: as `fails` in one key; in all others no message fails always."""
    if delivery.key == FAILING_KEY:
        return fails(delivery)
    return delivery.value % FAILS_TWICE_EVERY == 0 and delivery.attempt <= 2


def work(report: Report, hub_path: Path, log_path: Path, concurrency: int) -> None:
    """Work until the process is killed or gets SIGTERM."""
    with tailrace.open(hub_path) as hub:
        work_in(hub, report, log_path, concurrency, fails)


def work_failing_in_one_key(
    report: Report, hub_path: Path, log_path: Path, concurrency: int
) -> None:
    """Work until the process is killed or gets SIGTERM. Only one key has dead letters."""
    with tailrace.open(hub_path) as hub:
        work_in(hub, report, log_path, concurrency, fails_in_one_key)


def work_in(
    hub: Hub,
    report: Report,
    log_path: Path,
    concurrency: int,
    failing: Callable[[Delivery[int]], bool],
) -> None:
    """Work in a hub until the process is killed or gets SIGTERM."""
    log, over = HandlerLog(log_path), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())

    def handle(delivery: Delivery[int]) -> None:
        fails_now = failing(delivery)
        time.sleep(0.0005)
        log.write(delivery, succeeded=not fails_now)
        if fails_now:
            raise ConnectionError("the warehouse does not answer")

    subscription = hub.subscription(NAME)
    with subscription.start(handle, type=int, concurrency=concurrency) as worker:
        report(worker.id)
        over.wait()


def work_until_poisoned(report: Report, hub_path: Path, log_path: Path, concurrency: int) -> None:
    """Work; the payload -1 ends the process at once."""
    log = HandlerLog(log_path)

    def handle(delivery: Delivery[int]) -> None:
        if delivery.value == -1:
            log.write(delivery, succeeded=False)
            time.sleep(0.02)  # so that others are in flight beside it
            os._exit(9)
        time.sleep(0.03)
        log.write(delivery, succeeded=True)

    with tailrace.open(hub_path) as hub:
        worker = hub.subscription(NAME).start(handle, type=int, concurrency=concurrency)
        report(worker.id)
        worker.wait()


def make_hub(path: Path, *, partitions: int = 4, **options: Any) -> None:
    """Create a hub with a topic and a subscription."""
    options.setdefault("retry", QUICKLY)
    with tailrace.open(path, sync="none") as hub:
        hub.create_topic(TOPIC, int, partitions=partitions)
        hub.create_subscription(NAME, topic=TOPIC, **options)


def push(hub: Hub, keys: int, first: int, after: int) -> dict[tuple[str, int], Receipt]:
    """Push the messages of each key with these numbers, and return their receipts."""
    return push_pairs(
        hub, [(f"k{key}", number) for number in range(first, after) for key in range(keys)]
    )


def push_pairs(hub: Hub, pairs: list[tuple[str, int]]) -> dict[tuple[str, int], Receipt]:
    """Push messages, given as keys and numbers, and return their receipts."""
    receipts = hub.topic(TOPIC, int).push_many(pairs)
    return dict(zip(pairs, receipts, strict=True))


def dead_letters(hub: Hub) -> dict[tuple[str, int], str]:
    """Return the messages that were ever appended to DLQ, with the error."""
    return {
        (str(each.key), int(each.value)): each.headers[ERROR].decode()
        for each in _queued(hub, dead_letter_queue(NAME))
    }


def queued_twice(hub: Hub) -> list[str]:
    """Return the messages that RQ or DLQ have more than once, by position."""
    found = []
    for queue in (retry_queue(NAME), dead_letter_queue(NAME)):
        seen: set[bytes] = set()
        for message in _queued(hub, queue):
            position = message.headers[POSITION]
            if position in seen:
                found.append(f"{position.decode()} in {queue}")
            seen.add(position)
    return found


def resident_bytes() -> int:
    """Return the memory of this process."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def end(child: Child) -> list[Any]:
    """Let a worker process finish, and return its last reports."""
    os.kill(child.pid, signal.SIGTERM)
    reports = list(child.rest())
    assert child.exit_code == 0
    return reports


def _queued(hub: Hub, queue: str) -> list[Message[Any]]:
    return list(all_messages(hub.topic(queue)))


def start(act: Work, hub_path: Path, log_path: Path, concurrency: int) -> Child:
    """Start a worker process, and wait until it has joined."""
    child = Child(act, hub_path, log_path, concurrency)
    child.next_report()
    return child
