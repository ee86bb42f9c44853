"""The declarations of metrics follow the conventions, and no label has unboundedly many values."""

from __future__ import annotations

import re

import pytest

from tailrace import telemetry
from tailrace.reporting.metric import Metric, MetricKind, MetricScope
from tailrace.telemetry import METRICS

BOUNDED = {"group", "outcome", "pipeline", "process", "queue", "source", "state", "subscription"}
BOUNDED |= {"topic", "writer"}
"""Labels with as many values as people give names, or fewer."""


def test_every_metric_has_a_name_of_its_own() -> None:
    declared = [each for each in vars(telemetry).values() if isinstance(each, Metric)]
    assert len(declared) == len(METRICS) > 40


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_metrics_follow_the_conventions_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"tailrace(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert not metric.name.endswith(("_count", "_sum", "_bucket"))
    assert (metric.kind is MetricKind.HISTOGRAM) == bool(metric.buckets)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert set(metric.labels) <= BOUNDED


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_metrics_have_a_meaning_in_sentences(metric: Metric) -> None:
    assert metric.meaning.endswith(".")
    assert not metric.remedy or metric.remedy.endswith(".")
    assert "|" not in metric.meaning + metric.remedy


def test_the_unit_is_the_last_word_of_the_name() -> None:
    assert telemetry.PUSH_SECONDS.unit == "seconds"
    assert telemetry.PUSHED_BYTES.unit == "bytes"
    assert telemetry.PUSHED_MESSAGES.unit == ""


def test_what_is_of_the_hub_is_told_apart_from_what_is_of_a_process() -> None:
    assert telemetry.GROUP_LAG.scope is MetricScope.HUB
    assert telemetry.CONSUMER_PARTITIONS.scope is MetricScope.PROCESS
