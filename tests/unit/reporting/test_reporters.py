"""What reports about a hub in a process: living parts, ended ones, and those that fail."""

from __future__ import annotations

import gc
import os

import pytest

from tailrace import telemetry
from tailrace.reporting.histogram import Histogram
from tailrace.reporting.reporters import Reporters, reporters_of
from tailrace.reporting.sample import Sample, summed
from tailrace.telemetry import SERIES_MAX
from tailrace.testing import MemoryBackend
from tailrace.topic.push_reporter import pushes_to


class Part:
    """A part of a process that owns shards and has lost some."""

    def __init__(self, name: str = "mailer", lost: int = 0) -> None:
        self.name = name
        self.lost = lost
        self.error: Exception | None = None
        self.reason: str | None = None
        self.seconds = Histogram(telemetry.WORKER_CALL_SECONDS)

    def report(self) -> list[Sample]:
        if self.error is not None:
            raise self.error
        return [
            Sample(telemetry.WORKER_SHARDS, (self.name,), 2),
            Sample(telemetry.WORKER_SHARDS_LOST, (self.name,), self.lost),
            Sample(telemetry.WORKER_CALL_SECONDS, (self.name,), self.seconds.value),
        ]

    def unready(self) -> str | None:
        if self.error is not None:
            raise self.error
        return self.reason


def values(reporters: Reporters) -> dict[tuple[str, ...], float]:
    """Return the numbers of all series."""
    samples = reporters.samples()
    return {
        (each.metric.name.removeprefix("tailrace_worker_"), *each.labels): each.value
        for each in samples
        if isinstance(each.value, int | float)
    }


def test_the_parts_of_a_process_are_summed_up_by_series() -> None:
    reporters = Reporters()
    parts = [Part(lost=1), Part(lost=4), Part("billing")]
    for part in parts:
        reporters.add(part)
        part.seconds.observe(0.2)
    assert values(reporters) == {
        ("shards", "mailer"): 4,
        ("shards_lost_total", "mailer"): 5,
        ("shards", "billing"): 2,
        ("shards_lost_total", "billing"): 0,
    }
    calls = [each for each in reporters.samples() if each.metric is telemetry.WORKER_CALL_SECONDS]
    assert sorted(sum(each.value.counts) for each in calls) == [1, 2]  # type: ignore[union-attr]


def test_the_counts_of_a_part_that_has_ended_stay_and_its_gauges_go() -> None:
    reporters = Reporters()
    first, second = Part(lost=3), Part(lost=1)
    reporters.add(first)
    reporters.add(second)
    reporters.retire(first)
    reporters.retire(first)
    assert values(reporters) == {("shards", "mailer"): 2, ("shards_lost_total", "mailer"): 4}


def test_a_part_that_nobody_uses_any_more_does_not_stay_alive() -> None:
    reporters = Reporters()
    reporters.add(Part())
    gc.collect()
    assert reporters.samples() == []


def test_a_part_that_cannot_report_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    reporters = Reporters()
    broken, well = Part("broken"), Part("well")
    broken.error = OSError("no disk")
    reporters.add(broken)
    reporters.add(well)
    assert values(reporters)[("shards", "well")] == 2
    assert "Part could not report its metrics" in caplog.text


def test_parts_that_do_not_work_say_why() -> None:
    reporters = Reporters()
    part = Part()
    reporters.add(part)
    assert reporters.unready() is None
    part.reason = "starting"
    assert reporters.unready() == "starting"
    part.error = OSError("no disk")
    assert reporters.unready() == "no disk"


def test_series_beyond_the_bound_are_summed_up_as_other() -> None:
    samples = [Sample(telemetry.WORKER_SHARDS, (f"s{i}",), 1) for i in range(SERIES_MAX + 5)]
    found = {(each.metric, each.labels): each.value for each in summed(samples)}
    assert len(found) == SERIES_MAX + 2
    assert found[telemetry.WORKER_SHARDS, ("other",)] == 5
    assert found[telemetry.MERGED_SERIES, ()] == 5


def test_series_that_are_summed_up_again_are_counted_once() -> None:
    once = summed(Sample(telemetry.WORKER_SHARDS, (f"s{i}",), 1) for i in range(SERIES_MAX + 5))
    assert set(summed(summed(once))) == set(once)


def test_each_hub_has_its_own_reporters() -> None:
    one, two = MemoryBackend(), MemoryBackend()
    part = Part()
    reporters_of(one).add(part)
    assert reporters_of(one).samples()
    assert reporters_of(two).samples() == []


def test_a_forked_child_begins_to_count_from_0() -> None:
    backend = MemoryBackend()
    part, pushes = Part(lost=7), pushes_to(backend, "orders")
    reporters_of(backend).add(part)
    pushes.pushed(3, 100, 0.1)
    child = os.fork()
    if child == 0:
        pushes.pushed(1, 10, 0.1)
        found = {each.metric.name: each.value for each in reporters_of(backend).samples()}
        pushed = found["tailrace_pushed_messages_total"]
        os._exit(0 if pushed == 1 and "tailrace_worker_shards" not in found else 1)
    assert os.waitpid(child, 0)[1] == 0
