"""Metrics as text, in the format that Prometheus reads: text exposition format 0.0.4."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from tailrace.reporting.histogram import HistogramValue
from tailrace.reporting.metric import Metric
from tailrace.reporting.sample import Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def exposition(samples: Iterable[Sample]) -> str:
    """Return samples as text, one group of lines for each metric. Each series may occur once."""
    by_name: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_name[sample.metric.name].append(sample)
    lines = [line for _, found in sorted(by_name.items()) for line in _metric_lines(found)]
    return "\n".join(lines) + "\n"


def _metric_lines(samples: list[Sample]) -> Iterator[str]:
    metric = samples[0].metric
    help_text = metric.meaning.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {metric.name} {help_text}"
    yield f"# TYPE {metric.name} {metric.kind.value}"
    for sample in sorted(samples, key=lambda each: (each.process, each.labels)):
        pairs = list(zip(metric.labels, sample.labels, strict=True))
        if sample.process:
            pairs.append(("process", sample.process))
        if isinstance(sample.value, HistogramValue):
            yield from _histogram_lines(metric, pairs, sample.value)
        else:
            yield f"{metric.name}{_label_text(pairs)} {_number(sample.value)}"


def _histogram_lines(
    metric: Metric, pairs: list[tuple[str, str]], value: HistogramValue
) -> Iterator[str]:
    count = 0
    for bound, in_bucket in zip((*metric.buckets, inf), value.counts, strict=True):
        count += in_bucket
        yield f"{metric.name}_bucket{_label_text([*pairs, ('le', _number(bound))])} {count}"
    yield f"{metric.name}_sum{_label_text(pairs)} {_number(value.total)}"
    yield f"{metric.name}_count{_label_text(pairs)} {count}"


def _label_text(pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
