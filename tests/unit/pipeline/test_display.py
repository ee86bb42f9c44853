"""The progress of a run on standard error."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tailrace.pipeline.display import RunDisplay
from tailrace.pipeline.report import RunProgress, WriterReport
from tailrace.pipeline.report_text import progress_line, progress_text
from tailrace.pipeline.writer_status import WaitsFor, WriterStatus
from tailrace.terminal.progress import LINE_S, ProgressDisplay

PROGRESS = RunProgress(
    pipeline="lake",
    seconds=1.0,
    starting=None,
    rows_read=3,
    unreadable=1,
    waiting=None,
    blocked_by=None,
    stopping=False,
    writers=(),
)


class Seconds:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_wait_and_a_stop_are_each_written_once_and_progress_as_lines() -> None:
    stream, seconds = io.StringIO(), Seconds()
    display = RunDisplay(on_stop="stopping", display=ProgressDisplay(stream, seconds))
    waiting = replace(PROGRESS, waiting="no file matches")
    for now in (waiting, waiting, PROGRESS):
        display(now)
    seconds.now = LINE_S
    display(PROGRESS)
    display(replace(PROGRESS, stopping=True))
    display(replace(PROGRESS, stopping=True))
    assert stream.getvalue().splitlines() == [
        "lake: the reader waits: no file matches",
        "lake: 3 rows read, 1 unreadable line",
        "stopping",
    ]


def test_a_writer_that_waits_for_its_sink_is_part_of_the_line_and_of_the_table() -> None:
    since = datetime(2026, 11, 17, 2, 51, 3, tzinfo=UTC)
    waiting = WriterReport(
        name="lake/crm",
        state=WriterStatus.WAITING,
        rows=0,
        rows_per_second=0.0,
        lag=7,
        parked=0,
        position=None,
        error="no route",
        since=since,
        next_try=since + timedelta(seconds=30),
        waits_for=WaitsFor.SINK,
    )
    progress = replace(PROGRESS, writers=(waiting,))
    wait = "since 02:51:03Z, next try 02:51:33Z: no route"
    assert progress_line(progress).endswith(f"; lake/crm waits for its sink {wait}")
    header, _, row = progress_text(progress).splitlines()
    assert header == "lake: 3 rows read, 1 unreadable line"
    assert row.split(maxsplit=5) == ["lake/crm", "waiting", "0", "0", "7", wait]
