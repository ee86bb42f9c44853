"""Durations, counted in buckets."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from typing import Final, NamedTuple

from tailrace.reporting.metric import Metric

FRESH_MAX: Final = 1024
"""The largest number of values that are in no bucket yet."""


class HistogramValue(NamedTuple):
    """A histogram at one time: the number of values in each bucket, and the sum of all values.

    The last bucket has the values above every bound.
    """

    counts: tuple[int, ...]
    total: float

    def plus(self, other: HistogramValue) -> HistogramValue:
        """Return the values of two histograms with the same buckets."""
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return HistogramValue(counts, self.total + other.total)


class Histogram:
    """The values of a metric. Any thread may use it; to add a value takes less than 1 µs.

    Values are put into their buckets later, many at a time: between two calls of a handler, the
    buckets are in no cache of the processor.
    """

    __slots__ = ("_bounds", "_counts", "_fresh", "_mutex", "_total")

    def __init__(self, metric: Metric) -> None:
        self._bounds = metric.buckets
        self._counts = [0] * (len(metric.buckets) + 1)
        self._total = 0.0
        self._fresh: deque[float] = deque()
        self._mutex = threading.Lock()

    def observe(self, value: float) -> None:
        """Add a value."""
        self._fresh.append(value)
        if len(self._fresh) >= FRESH_MAX:
            self._count_fresh()

    @property
    def value(self) -> HistogramValue:
        """The values so far."""
        self._count_fresh()
        with self._mutex:
            return HistogramValue(tuple(self._counts), self._total)

    def _count_fresh(self) -> None:
        with self._mutex:
            for _ in range(len(self._fresh)):
                value = self._fresh.popleft()
                self._counts[bisect_left(self._bounds, value)] += 1
                self._total += value
