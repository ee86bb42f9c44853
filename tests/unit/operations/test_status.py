"""The health of pipelines: behind and not running, or without anything to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.hub.hub import Hub
from tailrace.operations.pipeline.rewind import rewind
from tailrace.operations.status import RESTART_MAX, HubStatus, status
from tailrace.pipeline.catalog import hold_name
from tailrace.pipeline.last_run import LastRun, find_last_run, store_last_run
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.writer_ledger import WriterState
from tailrace.testing import ManualClock, MemoryBackend
from tests.support.pipelines.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Hub.from_backend(MemoryBackend()) as hub:
        lake = Lake(hub, tmp_path)
        assert lake.run()
        yield lake


STOPPED_MS = 1_000_000_000_000
"""2001-09-09 01:46:40Z."""


def stopped(lake: Lake, *, follows: bool = False, caught_up: bool = True) -> None:
    """Let the last run have ended at `STOPPED_MS`."""
    run = LastRun(STOPPED_MS - 1000, follows, STOPPED_MS, caught_up)
    store_last_run(lake.hub.backend, "lake", run)


def status_after(lake: Lake, seconds: float) -> HubStatus:
    """Return the status some time after `STOPPED_MS`."""
    return status(lake.hub, ManualClock(STOPPED_MS + round(seconds * 1000)))


AFTER = RESTART_MAX.total_seconds()


def test_a_run_once_that_has_delivered_everything_is_well(lake: Lake) -> None:
    found = status(lake.hub)
    assert (found.well, found.notes) == (True, ())


def test_a_pipeline_that_lags_and_does_not_run_is_not_well(lake: Lake) -> None:
    rewind(lake.hub, "lake/crm", "9")
    stopped(lake)
    (problem,) = status_after(lake, AFTER).problems
    assert problem.subject == "pipeline lake"
    assert problem.what == "not running since 01:46, lake/crm lags 7"
    assert problem.remedy == "tailrace pipeline run FILE"
    (problem,) = status_after(lake, 24 * 3600).problems
    assert problem.what.startswith("not running since 2001-09-09 01:46, ")


def test_a_pipeline_that_lags_may_restart_within_a_minute_of_a_clean_stop(lake: Lake) -> None:
    rewind(lake.hub, "lake/crm", "9")
    stopped(lake)
    found = status_after(lake, AFTER - 0.1)
    assert found.well
    assert [note.what for note in found.notes] == ["not running since 01:46, lake/crm lags 7"]


def test_a_pipeline_that_lags_and_runs_is_well(lake: Lake) -> None:
    rewind(lake.hub, "lake/crm", "9")
    stopped(lake)
    with lake.hub.backend.hold(hold_name("lake"), "a test"):
        assert status_after(lake, AFTER).well


def test_a_killed_run_is_not_well_at_once_although_its_writers_have_everything(lake: Lake) -> None:
    store_last_run(lake.hub.backend, "lake", LastRun(STOPPED_MS, follows=True))
    (problem,) = status_after(lake, 0).problems
    assert problem.what == ("not running, its run of 01:46 was killed, its reader has not finished")


def test_a_run_once_that_was_killed_after_everything_was_delivered_is_well(lake: Lake) -> None:
    last = find_last_run(lake.hub.backend, "lake")
    assert last is not None
    assert last.caught_up
    store_last_run(lake.hub.backend, "lake", LastRun(STOPPED_MS, follows=False, caught_up=True))
    assert status_after(lake, AFTER).well


def test_a_reader_that_was_stopped_before_it_had_read_everything_is_not_well(lake: Lake) -> None:
    stopped(lake, caught_up=False)
    (problem,) = status_after(lake, AFTER).problems
    assert problem.what == "not running since 01:46, its reader has not finished"


def test_a_following_run_that_was_stopped_caught_up_is_a_note(lake: Lake) -> None:
    stopped(lake, follows=True)
    found = status_after(lake, AFTER)
    assert found.well
    assert [note.what for note in found.notes] == ["not running since 01:46, caught up"]


def test_a_failed_writer_is_one_problem_and_not_two(lake: Lake) -> None:
    lake.rows = 32
    lake.refuse(20)
    assert not lake.run()
    stopped(lake)
    assert [problem.subject for problem in status_after(lake, AFTER).problems] == [
        "writer lake/crm"
    ]


def test_a_writer_that_waits_for_its_sink_longer_than_a_minute_is_not_well(lake: Lake) -> None:
    ledger = lake.ledger()
    ledger.take_over()
    waits = WriterState(WriterStatus.WAITING, since_ms=STOPPED_MS, error="down")
    ledger.commit(plan=None, state=waits)
    with lake.hub.backend.hold(hold_name("lake"), "a test"):
        early, late = status_after(lake, 60), status_after(lake, 61)
    waiting = "WAITING since 01:46 for its sink, lag 0"
    assert [(note.subject, note.what) for note in early.notes] == [("writer lake/crm", waiting)]
    assert early.well
    assert [(each.subject, each.what) for each in late.problems] == [("writer lake/crm", waiting)]
    assert late.notes == ()


def test_a_reader_that_finds_nothing_is_not_well_while_its_run_waits(lake: Lake) -> None:
    waiting = "no file matches 'in/*.jsonl' · searched /data/in · check the path"
    run = LastRun(STOPPED_MS, follows=True, waiting=waiting)
    store_last_run(lake.hub.backend, "lake", run)
    with lake.hub.backend.hold(hold_name("lake"), "a test"):
        (problem,) = status_after(lake, AFTER).problems
    assert problem.subject == "reader lake"
    assert problem.what == "no file matches 'in/*.jsonl', searched /data/in"
