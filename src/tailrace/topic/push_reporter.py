"""What a process reports of its pushes to a topic."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tailrace import telemetry
from tailrace.backend.contract import Backend
from tailrace.errors import Conflict
from tailrace.reporting.histogram import FRESH_MAX, Histogram
from tailrace.reporting.reporters import reporters_of
from tailrace.reporting.sample import Sample

T = TypeVar("T")


class PushReporter:
    """A `Reporter` of the pushes to one topic, by all parts of the process. Any thread may use
    it."""

    def __init__(self, topic: str) -> None:
        self._labels = (topic,)
        self.forget()

    def forget(self) -> None:
        """Count from 0: in a forked child."""
        self._mutex = threading.Lock()
        self._fresh: deque[tuple[int, int, float]] = deque()
        self._messages = self._size_bytes = self._failures = 0
        self._seconds = Histogram(telemetry.PUSH_SECONDS)

    def count(self, messages: int, size_bytes: int, push: Callable[[], T]) -> T:
        """Push messages of this size, and count them and the time that it takes."""
        began = time.monotonic()
        try:
            stored = push()
        except Conflict:  # an id that was pushed before is no failure
            raise
        except BaseException:
            self.failed()
            raise
        self.pushed(messages, size_bytes, time.monotonic() - began)
        return stored

    def pushed(self, messages: int, size_bytes: int, seconds: float) -> None:
        """Record that messages are stored."""
        # Counted later, many at a time, as the values of a histogram are.
        self._fresh.append((messages, size_bytes, seconds))
        if len(self._fresh) >= FRESH_MAX:
            self._count_fresh()

    def _count_fresh(self) -> None:
        with self._mutex:
            for _ in range(len(self._fresh)):
                messages, size_bytes, seconds = self._fresh.popleft()
                self._messages += messages
                self._size_bytes += size_bytes
                self._seconds.observe(seconds)

    def failed(self) -> None:
        """Record that a push has raised an error."""
        with self._mutex:
            self._failures += 1

    def report(self) -> list[Sample]:
        """Return the samples of now."""
        self._count_fresh()
        return [
            Sample(telemetry.PUSHED_MESSAGES, self._labels, self._messages),
            Sample(telemetry.PUSHED_BYTES, self._labels, self._size_bytes),
            Sample(telemetry.PUSH_FAILURES, self._labels, self._failures),
            Sample(telemetry.PUSH_SECONDS, self._labels, self._seconds.value),
        ]

    def unready(self) -> None:
        """Return None: pushes wait for nothing."""


class QueueReporter:
    """A `Reporter` of one pipelined producer. `queued` returns the number of its messages that are
    not stored yet."""

    def __init__(self, topic: str, queued: Callable[[], int]) -> None:
        self._labels = (topic,)
        self._queued = queued

    def report(self) -> list[Sample]:
        """Return the samples of now."""
        return [Sample(telemetry.PRODUCER_QUEUED, self._labels, self._queued())]

    def unready(self) -> None:
        """Return None: a producer works from its start."""


def pushes_to(backend: Backend, topic: str) -> PushReporter:
    """Return what reports the pushes of this process to a topic."""
    return reporters_of(backend).shared(("pushes", topic), partial(PushReporter, topic))
