"""`Pipeline.run` and `stop` in a program: report, progress, stopping, one run at a time."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import FrameType

import pytest

from tailrace import Hub, Pipeline, RunOutcome, RunProgress, RunReport, WriterStatus
from tailrace.errors import Busy, NothingToRead, PipelineFailed
from tailrace.pipeline.last_run import find_last_run
from tailrace.pipeline.reading.reader_failure import find_failure
from tailrace.source.reader import Preview
from tailrace.testing import MemoryBackend
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import delivered, set_bad
from tests.support.pipelines.running_pipeline import add
from tests.support.waiting import DEADLINE_S, in_thread, until


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


def lake(tmp_path: Path, rows: int = 10) -> Pipeline:
    made = Pipeline("lake", CountingReader(rows))
    add(made, tmp_path, "crm", on_error="park")
    return made


class RunInThread:
    """`Pipeline.run` in a thread, until it is stopped."""

    def __init__(self, made: Pipeline, hub: Hub) -> None:
        self.reports: list[RunReport] = []
        self._thread = in_thread(lambda: self.reports.append(made.run(hub)))

    def end(self) -> RunReport:
        self._thread.join(DEADLINE_S)
        (report,) = self.reports
        return report


def test_a_run_returns_what_was_read_and_written(hub: Hub, tmp_path: Path) -> None:
    made = lake(tmp_path)
    set_bad(tmp_path / "crm", 3)
    report = made.run(hub, once=True)
    assert (report.pipeline, report.outcome) == ("lake", RunOutcome.DONE)
    assert (report.rows_read, report.unreadable, report.dead_letters) == (10, 0, 1)
    assert report.seconds > 0
    crm = report.writer("crm")
    assert report.writers == (crm,) == (report.writer("lake/crm"),)
    assert (crm.rows, crm.parked, crm.lag, crm.state) == (9, 1, 0, WriterStatus.DONE)
    with pytest.raises(KeyError):
        report.writer("files")
    with pytest.raises(FrozenInstanceError):
        report.rows_read = 11  # type: ignore[misc]
    again = made.run(hub, once=True)
    assert (again.rows_read, again.writer("crm").rows, again.writer("crm").parked) == (0, 0, 0)


def test_a_failed_run_raises_an_error_that_has_the_report(hub: Hub, tmp_path: Path) -> None:
    made = Pipeline("lake", CountingReader(10))
    set_bad(add(made, tmp_path, "crm"), 3)
    add(made, tmp_path, "files")
    with pytest.raises(PipelineFailed, match="refused because of 3") as failed:
        made.run(hub, once=True)
    report = failed.value.report
    assert report is not None
    assert report.outcome is RunOutcome.FAILED
    assert report.writer("files").rows == 10
    assert report.writer("crm").state is WriterStatus.FAILED
    assert report.failures == failed.value.failures


def test_a_run_that_a_failure_ends_was_not_asked_to_stop(hub: Hub, tmp_path: Path) -> None:
    made = Pipeline("lake", CountingReader(10))
    set_bad(add(made, tmp_path, "crm", on_error="stop-all"), 3)
    seen: list[RunProgress] = []
    with pytest.raises(PipelineFailed):
        made.run(hub, progress=seen.append)
    assert seen
    assert not any(each.stopping for each in seen)


def test_a_function_gets_the_progress_in_the_callers_thread_and_last_the_end(
    hub: Hub, tmp_path: Path
) -> None:
    calls: list[tuple[int, RunProgress]] = []
    made = lake(tmp_path)
    made.run(hub, once=True, progress=lambda now: calls.append((threading.get_ident(), now)))
    assert {thread for thread, _ in calls} == {threading.get_ident()}
    last = calls[-1][1]
    assert (last.pipeline, last.rows_read, last.starting, last.stopping) == (
        "lake",
        10,
        None,
        False,
    )
    assert [(each.name, each.rows) for each in last.writers] == [("lake/crm", 10)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "progress", "shown"),
    [(True, None, True), (True, False, False), (False, None, False)],
)
def test_progress_is_drawn_on_a_terminal_unless_it_is_turned_off(
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    progress: bool | None,
    shown: bool,
) -> None:
    made = Pipeline("lake", CountingReader(10))
    add(made, tmp_path, "crm", delay_s=0.3)
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    made.run(hub, once=True, progress=progress)
    assert ("lake: " in stream.getvalue()) is shown


def test_a_run_is_stopped_cleanly_from_another_thread(hub: Hub, tmp_path: Path) -> None:
    made = lake(tmp_path)
    assert not made.stop()
    running = RunInThread(made, hub)
    until(lambda: len(delivered(tmp_path / "crm")) == 10)
    assert made.stop()
    report = running.end()
    assert (report.outcome, report.writer("crm").state) == (
        RunOutcome.STOPPED,
        WriterStatus.STOPPED,
    )
    assert not made.stop()
    last = find_last_run(hub.backend, "lake")
    assert last is not None
    assert (last.follows, last.caught_up, last.ended_ms is not None) == (True, True, True)


def test_a_run_once_that_is_stopped_before_its_end_has_a_reader_that_has_not_finished(
    hub: Hub, tmp_path: Path
) -> None:
    made = Pipeline("lake", CountingReader(1_000_000, batch=1))
    add(made, tmp_path, "crm")

    def stop(now: RunProgress) -> None:
        if now.rows_read:
            made.stop()

    report = made.run(hub, once=True, progress=stop)
    assert report.outcome is RunOutcome.STOPPED
    assert 0 < report.rows_read < 1_000_000
    last = find_last_run(hub.backend, "lake")
    assert last is not None
    assert (last.caught_up, last.ended_ms is not None) == (False, True)


def test_a_run_is_stopped_cleanly_from_a_signal_handler(hub: Hub, tmp_path: Path) -> None:
    made = lake(tmp_path)

    def stop(_number: int, _frame: FrameType | None) -> None:
        made.stop()

    def interrupt(now: RunProgress) -> None:
        if any(each.rows == 10 for each in now.writers) and not now.stopping:
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        assert made.run(hub, progress=interrupt).outcome is RunOutcome.STOPPED
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert delivered(tmp_path / "crm") == list(range(10))


def test_ctrl_c_finishes_the_batch_in_flight_and_is_raised(hub: Hub, tmp_path: Path) -> None:
    made = Pipeline("lake", CountingReader(10))
    path = add(made, tmp_path, "crm", delay_s=0.5)

    def interrupt(_now: RunProgress) -> None:
        until((path / "begun").exists)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.run(hub, progress=interrupt)
    assert delivered(path) == list(range(10))
    assert hub.backend.holder("pipeline/lake") is None


def test_a_pipeline_object_refuses_a_second_run_at_the_same_time(hub: Hub, tmp_path: Path) -> None:
    made = lake(tmp_path)
    running = RunInThread(made, hub)
    until(lambda: len(delivered(tmp_path / "crm")) == 10)
    with (
        Hub.from_backend(MemoryBackend()) as other,
        pytest.raises(Busy, match="this Pipeline object already runs pipeline lake"),
    ):
        made.run(other, once=True)
    made.stop()
    assert running.end().outcome is RunOutcome.STOPPED
    assert made.run(hub, once=True).outcome is RunOutcome.DONE


class EmptyReader(CountingReader, frozen=True):
    """A reader that has nothing to read before its file of rows exists."""

    def check(self) -> Preview:
        if not Path(self.rows_file).exists():
            raise NothingToRead(f"no file matches {self.rows_file!r}")
        return super().check()

    def there(self) -> int:
        with suppress(FileNotFoundError):
            return super().there()
        return 0


def empty_lake(tmp_path: Path) -> Pipeline:
    made = Pipeline("lake", EmptyReader(rows_file=str(tmp_path / "rows")))
    add(made, tmp_path, "late")
    return made


def test_a_run_once_that_finds_nothing_is_refused_before_anything_starts(
    hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(NothingToRead, match=r"reader: no file matches .*allow_empty=True"):
        empty_lake(tmp_path).run(hub, once=True)
    assert hub.topics() == []
    assert find_failure(hub.backend, "lake") is None


def test_a_pipeline_that_ran_before_and_finds_nothing_has_a_failed_reader(
    hub: Hub, tmp_path: Path
) -> None:
    lake(tmp_path).run(hub, once=True)
    made = empty_lake(tmp_path)
    with pytest.raises(NothingToRead):
        made.run(hub, once=True)
    failure = find_failure(hub.backend, "lake")
    assert failure is not None
    assert "no file matches" in failure.error
    report = made.run(hub, once=True, allow_empty=True)
    assert report.outcome is RunOutcome.DONE
    assert (report.rows_read, report.writer("late").rows) == (0, 10)
    assert report.waiting is not None
    assert report.waiting.startswith("no file matches")
    assert find_failure(hub.backend, "lake") is None


def test_a_run_that_follows_an_empty_source_waits_and_reports_that_it_does(
    hub: Hub, tmp_path: Path
) -> None:
    waits: list[str | None] = []
    made = empty_lake(tmp_path)

    def follow(now: RunProgress) -> None:
        waits.append(now.waiting)
        if now.waiting is not None:
            last = find_last_run(hub.backend, "lake")
            assert last is not None
            assert last.waiting == now.waiting
            (tmp_path / "new").write_text("3")
            (tmp_path / "new").rename(tmp_path / "rows")
        if any(each.rows for each in now.writers):
            made.stop()

    assert made.run(hub, progress=follow).rows_read == 3
    assert any(wait is not None and wait.startswith("no file matches") for wait in waits)
    assert waits[-1] is None
