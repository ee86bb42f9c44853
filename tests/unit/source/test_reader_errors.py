"""Errors of readers: which of them a task survives, and what else it reads meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from tailrace import Hub, Source, SourceOutcome
from tailrace.hub.topic import Topic
from tailrace.log.record import Record
from tailrace.source.reader import Batch, Preview, Split, Until
from tailrace.source.run import SourceRun
from tailrace.testing import ManualClock, MemoryBackend
from tests.unit.source.scripted_reader import ScriptedReader, ScriptedReading, rows, values


class Failing(ScriptedReading):
    """Split `a` raises what `error` returns, as long as it returns something."""

    error: Callable[[], Exception | None] = staticmethod(lambda: None)
    reads = 0

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        for batch in self._script[split.id][position or 0 :]:
            if split.id == "a":
                self.reads += 1
                if error := self.error():
                    raise error
            yield batch


class PreviewedReader(ScriptedReader, frozen=True):
    def check(self) -> Preview:
        return Preview("a script", [("ns", {})])


def script(count: int) -> dict[str, list[Batch | None]]:
    return {
        name: [
            Batch(rows(f"{name}{n}"), n + 1, finished=n == count - 1, children=())
            for n in range(count)
        ]
        for name in "ab"
    }


def failing(*, times: int, error: Exception, count: int = 5) -> Failing:
    reading = Failing(script(count), (Split("a"), Split("b")))
    errors = iter([error] * times)
    reading.error = lambda: next(errors, None)
    return reading


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
