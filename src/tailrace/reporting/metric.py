"""A metric: what a number that is reported means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """How the values of a metric behave."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricScope(Enum):
    """What a metric is about, and so how the values of several processes are joined."""

    PROCESS = "sum over processes"
    HUB = "the same from every process"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `remedy` is what helps if its value shows trouble; empty if it shows none.

    `buckets` are the upper bounds of a histogram, without infinity.
    """

    name: str
    kind: MetricKind
    scope: MetricScope
    labels: tuple[str, ...]
    meaning: str
    remedy: str
    buckets: tuple[float, ...] = ()

    @property
    def unit(self) -> str:
        """The unit of its values, which stands last in its name; empty for a count or a switch."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in ("seconds", "bytes", "ratio") else ""


def counter(name: str, labels: str, meaning: str, remedy: str = "") -> Metric:
    """Return a count that only rises while its process runs."""
    kind, scope = MetricKind.COUNTER, MetricScope.PROCESS
    return Metric(name, kind, scope, tuple(labels.split()), meaning, remedy)


def gauge(name: str, labels: str, meaning: str, remedy: str = "") -> Metric:
    """Return a number of now, of one process."""
    kind, scope = MetricKind.GAUGE, MetricScope.PROCESS
    return Metric(name, kind, scope, tuple(labels.split()), meaning, remedy)


def hub_gauge(name: str, labels: str, meaning: str, remedy: str = "") -> Metric:
    """Return a number of now, of the hub."""
    kind, scope = MetricKind.GAUGE, MetricScope.HUB
    return Metric(name, kind, scope, tuple(labels.split()), meaning, remedy)


def histogram(
    name: str, labels: str, buckets: tuple[float, ...], meaning: str, remedy: str = ""
) -> Metric:
    """Return the values of one process, counted in buckets."""
    kind, scope = MetricKind.HISTOGRAM, MetricScope.PROCESS
    return Metric(name, kind, scope, tuple(labels.split()), meaning, remedy, buckets)
