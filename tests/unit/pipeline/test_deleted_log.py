"""A commit log that an operator deletes: while the pipeline runs, and between two runs."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from tailrace.errors import PipelineFailed
from tailrace.hub.hub import Hub
from tailrace.pipeline.reading.reader_failure import find_failure
from tailrace.pipeline.report_text import report_text
from tailrace.testing import MemoryBackend
from tests.support.pipelines.lake import Lake
from tests.support.waiting import until


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(Hub.from_backend(MemoryBackend()), tmp_path)


@pytest.mark.parametrize("more", [0, 5], ids=["idle", "reading"])
def test_a_run_whose_log_is_deleted_ends_with_one_sentence(
    lake: Lake, caplog: pytest.LogCaptureFixture, more: int
) -> None:
    pipeline, failures = lake.pipeline(), list[BaseException]()
    crashed: list[object] = []
    threading.excepthook, before = crashed.append, threading.excepthook

    def run() -> None:
        try:
            pipeline.run(lake.hub)
        except PipelineFailed as error:
            failures.append(error)

    running = threading.Thread(target=run)
    try:
        running.start()
        until(lambda: len(lake.delivered()) == 16)
        with caplog.at_level(logging.WARNING):
            lake.hub.delete_topic("lake.commits")
            lake.count_file.write_text(str(16 + more))
            running.join(30)
    finally:
        pipeline.stop()
        running.join(30)
        threading.excepthook = before
    assert crashed == []
    (failed,) = failures
    assert isinstance(failed, PipelineFailed)
    (line,) = failed.report.failures if failed.report is not None else ()
    assert line.startswith("reader: the commit log lake.commits was deleted while the pipeline ran")
    assert "run the pipeline again" in line
    assert "topic create" not in line
    stored = find_failure(lake.hub.backend, "lake")
    assert stored is not None
    assert f"reader: {stored.error}" == line
    assert all(record.exc_info is None for record in caplog.records)


def test_records_that_were_lost_with_the_log_are_counted_once(lake: Lake) -> None:
    lake.fail_at_14()
    lake.hub.delete_topic("lake.commits")
    lake.refuse()
    report = lake.pipeline().run(lake.hub, once=True)
    (loss,) = report.losses
    assert loss.startswith("writer lake/crm lost at least 2 records, which it had not delivered")
    text = report_text(report)
    assert loss in text
    assert "all records of the new commit log were delivered" in text
    assert report.rows_read == 0
    for _ in range(2):
        again = lake.pipeline().run(lake.hub, once=True)
        assert again.losses == ()
        lake.hub.delete_topic("lake.commits")


def test_a_log_whose_records_were_all_delivered_is_created_again_without_a_loss(lake: Lake) -> None:
    assert lake.run()
    lake.hub.delete_topic("lake.commits")
    lake.rows = 20
    report = lake.pipeline().run(lake.hub, once=True)
    assert (report.losses, report.rows_read) == ((), 4)
