"""Errors of readers: which of them a task survives, and what else it reads meanwhile."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from tailrace import Hub, Source, SourceOutcome
from tailrace.hub.topic import Topic
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun
from tailrace.testing import ManualClock, MemoryBackend
from tests.unit.source.failing_reader import PreviewedReader, failing
from tests.unit.source.scripted_reader import ScriptedReader, values


def test_a_split_with_errors_is_read_again_at_growing_intervals_and_the_others_meanwhile(
    hub: Hub, log: Topic[Any], letters: Topic[Any]
) -> None:
    clock, reading = ManualClock(), failing(times=10, error=OSError("no answer"))
    run = SourceRun(hub, "s", ScriptedReader(reading), log, letters, Until.NOW, clock)
    failed: list[float] = []
    while not run.done:
        try:
            busy = run.step()
        except OSError:
            failed.append(clock.monotonic())
            continue
        if not busy:
            assert "b4" in values(log)
            clock.advance(0.1)
    intervals = [later - earlier for earlier, later in pairwise(failed)]
    assert intervals == pytest.approx([0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10], abs=0.15)
    assert sorted(values(log)) == [f"{name}{n}" for name in "ab" for n in range(5)]
    run.close()


def test_a_task_waits_for_a_source_that_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = PreviewedReader(failing(times=3, error=ConnectionError("refused")))
    with Hub.from_backend(MemoryBackend()) as hub, caplog.at_level(logging.WARNING):
        report = Source("s", reader).run(hub, once=True)
        assert (report.outcome, report.rows) == (SourceOutcome.DONE, 10)
    assert [each.getMessage() for each in caplog.records] == [
        "source s retries: ConnectionError: refused"
    ]


def test_any_other_error_of_a_reader_ends_the_run_and_the_next_one_continues() -> None:
    reader = PreviewedReader(failing(times=1, error=ValueError("not a number")))
    with Hub.from_backend(MemoryBackend()) as hub:
        with pytest.raises(ValueError, match="not a number"):
            Source("s", reader).run(hub, once=True)
        Source("s", reader).run(hub, once=True)
        assert sorted(values(hub.topic("s.commits"))) == [f"{n}{i}" for n in "ab" for i in range(5)]
