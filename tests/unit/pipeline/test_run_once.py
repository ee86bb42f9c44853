"""Runs with `once`: they deliver all rows present at their start, and no others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace import Hub
from tailrace import functions as fn
from tailrace.backend.contract import Transaction
from tailrace.log.record import Record
from tailrace.message import Partition
from tailrace.pipeline.engine.driver import DirectDriver, EndOffsets
from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.writing.writer_run import WriterRun
from tailrace.source.reader import Until
from tailrace.testing import MemoryBackend
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import delivered, set_bad
from tests.support.pipelines.running_pipeline import add
from tests.support.waiting import until


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


class LateDriver(DirectDriver):
    """Delivers nothing before all is read. Records if its writer counts as finished, before and
    after the delivery."""

    def __init__(self, hub: Hub, reading: Callable[[], bool]) -> None:
        super().__init__(hub)
        self.finished_calls: list[bool] = []
        self._reading = reading

    def drive(self, run: WriterRun, limit: EndOffsets, finished: Callable[[], bool]) -> None:
        until(lambda: not self._reading())
        self.finished_calls.append(finished())
        super().drive(run, limit, finished)
        self.finished_calls.append(finished())


def run_late(hub: Hub, made: Pipeline) -> LateDriver:
    """Run a pipeline of one writer once, and return its driver."""
    driver = LateDriver(hub, lambda: run.state().reading)
    run = PipelineRun(hub, made.definition, until=Until.NOW, driver_of=lambda *_: driver)
    assert run.run() is RunOutcome.DONE
    return driver


def test_a_writer_is_not_finished_before_it_has_all_that_was_read(hub: Hub, tmp_path: Path) -> None:
    made = Pipeline("lake", CountingReader(10))
    path = add(made, tmp_path, "out")
    assert run_late(hub, made).finished_calls == [False, True]
    assert delivered(path) == list(range(10))


def test_rows_appended_by_others_meanwhile_are_left_to_the_next_run(
    hub: Hub, tmp_path: Path
) -> None:
    late = 10

    def append_one(document: dict[str, Any]) -> dict[str, Any]:
        nonlocal late
        if late:
            late -= 1
            record = Record(0, 0, 0, 0, b"numbers", None, b'{"n":-1}')
            hub.backend.commit(Transaction(((Partition("lake.commits", 0, 0), (record,)),)))
        return document

    made = Pipeline("lake", CountingReader(10))
    path = add(made, tmp_path, "out", batch_rows=1, functions=[fn.python(append_one)])
    run_late(hub, made)
    assert delivered(path) == list(range(10))
    run_late(hub, made)
    assert delivered(path) == list(range(20))


def test_a_running_writer_finishes_after_another_has_failed(hub: Hub, tmp_path: Path) -> None:
    def wait_for_the_bad_one(document: dict[str, Any]) -> dict[str, Any]:
        until(lambda: "lake/bad" not in {thread.name for thread in threading.enumerate()})
        return document

    made = Pipeline("lake", CountingReader(10))
    set_bad(add(made, tmp_path, "bad"), 7)
    slow = add(made, tmp_path, "slow", batch_rows=2, functions=[fn.python(wait_for_the_bad_one)])
    assert made.prepare(hub, until=Until.NOW).run() is RunOutcome.FAILED
    assert delivered(slow) == list(range(10))
