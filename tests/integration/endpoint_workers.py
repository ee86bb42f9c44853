"""Worker processes that deliver to an endpoint, and a receiver that refuses stale duplicates."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import tailrace
from tailrace import Receipt
from tests.support.http_endpoint import OK, Answer, Posted, answers
from tests.support.processes import Child, Report

NAME = "crm"
TOPIC = "orders"
FAILS_TWICE_EVERY = 5


def deliver(report: Report, hub_path: Path, concurrency: int) -> None:
    """Deliver to the endpoint of the subscription until the process is killed or gets SIGTERM."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with (
        tailrace.open(hub_path) as hub,
        hub.subscription(NAME).start(concurrency=concurrency) as worker,
    ):
        report(worker.id)
        over.wait()


def start(hub_path: Path, concurrency: int = 8) -> Child:
    """Start a worker process, and return it once it works."""
    child = Child(deliver, hub_path, concurrency)
    child.next_report()
    return child


class Receiver:
    """What stands behind an endpoint: it keeps the last sequence of each key, and has an effect
    only for a higher one. Every fifth message fails twice."""

    def __init__(self) -> None:
        self.effects: defaultdict[str, list[int]] = defaultdict(list)
        """The numbers of the messages of each key, in the order in which they had an effect."""
        self.stale = 0
        """The number of requests that were refused as stale."""
        self.reordered: list[tuple[str, str, str]] = []
        """The keys whose sequence fell within one epoch, with both sequences."""
        self._last: dict[str, str] = {}
        self._newest: dict[str, tuple[int, str]] = {}
        self._mutex = threading.Lock()

    def answer(self, posted: Posted, before: int) -> Answer:
        """Answer a request, and have its effect."""
        number, key = int(posted.body), posted.key
        with self._mutex:
            if posted.sequence <= self._last.get(key, ""):
                self.stale += 1
                return OK
            self._check_order(posted)
            if number % FAILS_TWICE_EVERY == 0 and before < 2:
                return answers(503, b"upstream inventory down")
            self._last[key] = posted.sequence
            self.effects[key].append(number)
        return OK

    def _check_order(self, posted: Posted) -> None:
        """Record a request whose sequence is lower than that of a newer owner, or of the same."""
        epoch = int(posted.headers["ce-epoch"])
        newest = self._newest.get(posted.key)
        if newest is not None and posted.sequence < newest[1] and epoch >= newest[0]:
            self.reordered.append((posted.key, newest[1], posted.sequence))
        if newest is None or posted.sequence >= newest[1]:
            self._newest[posted.key] = (epoch, posted.sequence)

    @property
    def count(self) -> int:
        """The number of effects."""
        with self._mutex:
            return sum(map(len, self.effects.values()))


def expected(receipts: Mapping[tuple[str, int], Receipt]) -> dict[str, list[int]]:
    """Return the numbers that were pushed of each key, in order."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for key, number in receipts:
        found[key].append(number)
    return dict(found)
