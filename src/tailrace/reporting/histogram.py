"""Durations, counted in buckets."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import NamedTuple

from tailrace.reporting.metric import Metric


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
    """The values of a metric. Any thread may use it; to add a value takes less than 1 µs."""

    __slots__ = ("_bounds", "_counts", "_mutex", "_total")

    def __init__(self, metric: Metric) -> None:
        self._bounds = metric.buckets
        self._counts = [0] * (len(metric.buckets) + 1)
        self._total = 0.0
        self._mutex = threading.Lock()

    def observe(self, value: float) -> None:
        """Add a value."""
        with self._mutex:
            self.add(value)

    def add(self, value: float) -> None:
        """Add a value, with a lock of the caller that all who add hold."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    @property
    def value(self) -> HistogramValue:
        """The values so far."""
        with self._mutex:
            return HistogramValue(tuple(self._counts), self._total)
