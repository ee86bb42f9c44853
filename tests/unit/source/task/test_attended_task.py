"""A run of a task as its caller sees it: retries, the end, and what it tells meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tailrace import Hub, Source, SourceOutcome, SourceProgress
from tailrace.operations.explain import explain
from tailrace.source.task.task_record import read_records
from tailrace.testing import MemoryBackend
from tests.support.sources.split_reader import SplitReader
from tests.unit.source.failing_reader import PreviewedReader, failing


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


def test_a_task_that_reads_other_splits_while_one_fails_tells_the_error(hub: Hub) -> None:
    reading = failing(times=1000, error=ConnectionError("the API is down"))
    shop = Source("shop", PreviewedReader(reading))
    seen: list[SourceProgress] = []

    def stop_once_it_retries(progress: SourceProgress) -> None:
        seen.append(progress)
        if progress.rows == 5:
            shop.stop()

    report = shop.run(hub, progress=stop_once_it_retries)
    assert report.outcome is SourceOutcome.STOPPED
    assert report.retrying == "ConnectionError: the API is down"
    assert seen[-1].retrying == report.retrying
    assert seen[-1].stopping
    assert not seen[-1].caught_up
    (record,) = read_records(hub.backend, "shop").values()
    assert not record.caught_up


def test_an_error_that_is_over_is_not_told_any_more(hub: Hub) -> None:
    reading = failing(times=2, error=ConnectionError("the API is down"))
    report = Source("shop", PreviewedReader(reading)).run(hub, once=True)
    assert (report.outcome, report.retrying) == (SourceOutcome.DONE, None)


def test_a_split_that_follows_an_unknown_one_is_told_of_and_explained(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tailrace.source"):
        Source("shop", SplitReader(unmet=True)).run(hub, once=True)
    assert "split 'unmet' was not read: it follows 'never'" in caplog.text
    found = explain(hub, "shop")
    assert found.headline.startswith("STOPPED: source shop since ")
    waits = "split unmet starts when never, which no split has reported is finished"
    assert waits in [fact.what for fact in found.facts]
