"""The value of a metric, for one set of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from tailrace.reporting.histogram import HistogramValue
from tailrace.reporting.metric import Metric
from tailrace.telemetry import MERGED_SERIES, SERIES_MAX

OTHER: Final = "other"
"""The labels of the series that are summed up."""


class Sample(NamedTuple):
    """The value of a metric. `labels` are the values of its labels, in their order.

    `process` is the number of the process in its supervisor; empty without a supervisor.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float | HistogramValue
    process: str = ""

    def plus(self, other: Sample) -> Sample:
        """Return the sum of two values of one series."""
        mine, others = self.value, other.value
        if isinstance(mine, HistogramValue):
            assert isinstance(others, HistogramValue)
            return self._replace(value=mine.plus(others))
        assert not isinstance(others, HistogramValue)
        return self._replace(value=mine + others)


def summed(samples: Iterable[Sample]) -> list[Sample]:
    """Return one sample for each series: the sum of its samples.

    Of each metric at most `SERIES_MAX` series, and one for all others together.
    """
    found: dict[tuple[str, tuple[str, ...], str], Sample] = {}
    series: Counter[str] = Counter()
    merged = 0.0
    for sample in samples:
        metric, labels, value, process = sample
        if metric is MERGED_SERIES and not process:
            assert not isinstance(value, HistogramValue)
            merged += value
            continue
        if (metric.name, labels, process) not in found:
            if series[metric.name] >= SERIES_MAX and labels:
                merged += set(labels) != {OTHER}
                labels = (OTHER,) * len(labels)
            else:
                series[metric.name] += 1
        key = (metric.name, labels, process)
        before = found.get(key)
        found[key] = sample._replace(labels=labels) if before is None else before.plus(sample)
    if merged:
        found[MERGED_SERIES.name, (), ""] = Sample(MERGED_SERIES, (), merged)
    return list(found.values())
