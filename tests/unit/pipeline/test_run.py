"""Runs of whole pipelines on the direct engine: reader, writers, stopping, failing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tailrace import Hub
from tailrace.errors import (
    Busy,
    ConfigError,
    InvalidName,
    InvalidValue,
    PipelineFailed,
)
from tailrace.pipeline.catalog import find
from tailrace.pipeline.definition.definition import PipelineDefinition, WriterDefinition
from tailrace.pipeline.engine.driver import Driver, direct_driver
from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.reading.reader_failure import find_failure
from tailrace.pipeline.report import RunOutcome, RunProgress
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.writing.writer_run import WriterRun
from tailrace.source.reader import ReaderSession, Until
from tailrace.testing import MemoryBackend
from tailrace.testing.unreliable import UnreliableBackend
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.pausing_writer import PausingWriter
from tests.support.pipelines.recording_writer import RecordingWriter, delivered, set_bad
from tests.support.pipelines.running_pipeline import RunningPipeline, add
from tests.support.waiting import until


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


def pipeline(tmp_path: Path, rows: int, *names: str, **options: Any) -> Pipeline:
    made = Pipeline("lake", CountingReader(rows), **options)
    for name in names:
        add(made, tmp_path, name)
    return made


def test_once_delivers_all_present_rows_to_every_writer(hub: Hub, tmp_path: Path) -> None:
    made = pipeline(tmp_path, 10_003, "one", "other")
    assert made.run(hub, once=True).outcome is RunOutcome.DONE
    for name in ("one", "other"):
        assert delivered(tmp_path / name) == list(range(10_003))
    assert made.run(hub, once=True).outcome is RunOutcome.DONE
    assert len(delivered(tmp_path / "one")) == 10_003


def test_a_writer_that_fails_for_ever_stops_none_of_the_others(hub: Hub, tmp_path: Path) -> None:
    made = pipeline(tmp_path, 5000, "one", "bad", "other")
    set_bad(tmp_path / "bad", 7)
    with pytest.raises(PipelineFailed, match=r"lake/bad.*refused because of 7"):
        made.run(hub, once=True)
    assert delivered(tmp_path / "one") == delivered(tmp_path / "other") == list(range(5000))


def test_stop_all_stops_the_others_too(hub: Hub, tmp_path: Path) -> None:
    made = pipeline(tmp_path, 100)
    bad = add(made, tmp_path, "bad", on_error="stop-all")
    add(made, tmp_path, "good")
    set_bad(bad, 7)
    running = RunningPipeline(made.prepare(hub, until=Until.STOPPED))
    until(lambda: running.ending is not None)
    assert running.ending is RunOutcome.FAILED


def test_a_second_run_of_a_pipeline_is_refused_and_the_first_continues(
    hub: Hub, tmp_path: Path
) -> None:
    made = pipeline(tmp_path, 100, "one")
    running = RunningPipeline(made.prepare(hub, until=Until.STOPPED))
    until(lambda: len(delivered(tmp_path / "one")) == 100)
    with pytest.raises(Busy, match="process"):
        made.run(hub, once=True)
    assert running.stop() is RunOutcome.STOPPED


def test_rows_that_arrive_during_a_run_are_delivered(hub: Hub, tmp_path: Path) -> None:
    rows_file = tmp_path / "rows"
    rows_file.write_text("10")
    made = Pipeline("lake", CountingReader(rows_file=str(rows_file)))
    path = add(made, tmp_path, "one")
    running = RunningPipeline(made.prepare(hub, until=Until.STOPPED))
    until(lambda: len(delivered(path)) == 10)
    rows_file.write_text("25")
    until(lambda: len(delivered(path)) == 25)
    assert running.stop() is RunOutcome.STOPPED
    assert delivered(path) == list(range(25))


def test_a_slow_writer_is_stopped_between_two_batches(hub: Hub, tmp_path: Path) -> None:
    made = pipeline(tmp_path, 100)
    path = add(made, tmp_path, "slow", delay_s=0.05, batch_rows=1)
    running = RunningPipeline(made.prepare(hub, until=Until.STOPPED))
    until(lambda: delivered(path))
    assert running.stop() is RunOutcome.STOPPED
    assert len(delivered(path)) < 100
    made.run(hub, once=True)
    assert delivered(path) == list(range(100))


def test_a_thread_that_waits_for_the_batch_of_another_one_begins_none_after_a_stop(
    hub: Hub, tmp_path: Path
) -> None:
    made = pipeline(tmp_path, 10)
    path = tmp_path / "slow"
    path.mkdir()
    slow = PausingWriter(RecordingWriter(str(path)), str(path))
    made.write("slow", slow, engine="direct", batch_rows=1)
    running = RunningPipeline(made.prepare(hub, until=Until.STOPPED))
    until((path / "paused").exists)
    (writer,) = running.run._writers
    second = threading.Thread(target=writer.drain)
    second.start()
    until(lambda: sys._current_frames()[second.ident or 0].f_code.co_name == "drain")
    writer.stopping.set()
    (path / "go").touch()
    second.join()
    assert running.stop() is RunOutcome.STOPPED
    assert delivered(path) == [0]


class _UnreachableAtSecondBegin(RecordingWriter, frozen=True):
    """A recording writer that its driver cannot begin again while the sink is down."""

    def begin(self, writer: str, open_plan: str | None) -> None:
        if Path(self.path, "known").exists() and Path(self.path, "down").exists():
            raise ConnectionError("the sink is down")
        Path(self.path, "known").touch()


def test_no_other_thread_delivers_before_a_failed_try_is_recorded(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a writer that has delivered everything would end as one that waits for its sink."""
    made = pipeline(tmp_path, 10)
    (tmp_path / "lost").mkdir()
    (tmp_path / "lost" / "down").touch()
    made.write("lost", _UnreachableAtSecondBegin(str(tmp_path / "lost")), engine="direct")
    seen: list[list[int]] = []
    wait_or_fail = WriterRun.wait_or_fail

    def beside_another_thread(run: WriterRun, error: Exception) -> None:
        (tmp_path / "lost" / "down").unlink()
        other = threading.Thread(target=run.drain, daemon=True)
        other.start()
        other.join(0.5)
        seen.append(delivered(tmp_path / "lost"))
        wait_or_fail(run, error)

    monkeypatch.setattr(WriterRun, "wait_or_fail", beside_another_thread)
    assert made.run(hub, once=True).outcome is RunOutcome.DONE
    assert seen == [[]]
    assert delivered(tmp_path / "lost") == list(range(10))


def test_a_batch_that_is_not_finished_in_time_is_redelivered(hub: Hub, tmp_path: Path) -> None:
    made = pipeline(tmp_path, 10, stop_timeout="100ms")
    made.write(
        "slow", PausingWriter(RecordingWriter(str(tmp_path)), str(tmp_path)), engine="direct"
    )
    running = RunningPipeline(made.prepare(hub, until=Until.STOPPED))
    until((tmp_path / "paused").exists)
    assert running.stop() is RunOutcome.UNFINISHED
    (tmp_path / "go").touch()
    until(lambda: delivered(tmp_path))


def test_the_reader_pauses_while_a_writer_lags_too_far(hub: Hub, tmp_path: Path) -> None:
    made = pipeline(tmp_path, 100_000, log_bytes_max="100KiB")
    path = add(made, tmp_path, "stuck")
    set_bad(path, 0)
    running = RunningPipeline(made.prepare(hub, until=Until.STOPPED))
    until(lambda: running.run.state().blocked_by == "lake/stuck")
    assert running.run.state().rows_read < 100_000
    running.stop()


def test_a_run_once_does_not_wait_for_a_failed_writer(hub: Hub, tmp_path: Path) -> None:
    made = pipeline(tmp_path, 50_000, "good", log_bytes_max="100KiB")
    stuck = add(made, tmp_path, "stuck")
    set_bad(stuck, 0)
    with pytest.raises(PipelineFailed):
        made.run(hub, once=True)
    assert delivered(tmp_path / "good") == list(range(50_000))


def test_with_catch_up_all_nothing_is_read_before_every_writer_has_caught_up(
    hub: Hub, tmp_path: Path
) -> None:
    path = tmp_path / "bad"
    pipeline(tmp_path, 100, "good").run(hub, once=True)
    made = Pipeline("lake", CountingReader(200), catch_up="all")
    add(made, tmp_path, "bad")
    set_bad(path, 50)
    running = RunningPipeline(made.prepare(hub, until=Until.STOPPED))
    until(running.run.failures)
    assert running.run.state().rows_read == 0
    assert running.stop() is RunOutcome.FAILED


def test_a_sink_that_cannot_be_reached_is_named_before_anything_starts(
    hub: Hub, tmp_path: Path
) -> None:
    class Unreachable(RecordingWriter, frozen=True):
        def check(self) -> str:
            raise ConfigError("no route to the sink")

    made = Pipeline("lake", CountingReader(10))
    made.write("crm", Unreachable(str(tmp_path)), engine="direct")
    with pytest.raises(ConfigError, match=r"writer[.]crm: no route"):
        made.run(hub, once=True)
    assert hub.topics() == []


class BreakingReader(CountingReader, frozen=True):
    """A reader that cannot be opened while the file `broken` is there."""

    broken: str = ""

    def open(self, until: Until) -> ReaderSession:
        if Path(self.broken).exists():
            raise OSError("the cable is out")
        return super().open(until)


def test_the_error_of_a_failed_reader_is_stored_until_it_reads_again(
    hub: Hub, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    made = Pipeline("lake", BreakingReader(10, broken=str(broken)))
    add(made, tmp_path, "one")
    broken.touch()
    with pytest.raises(PipelineFailed, match="the cable is out"):
        made.run(hub, once=True)
    failure = find_failure(hub.backend, "lake")
    assert failure is not None
    assert (failure.error, failure.since_ms > 0) == ("OSError: the cable is out", True)
    broken.unlink()
    assert made.run(hub, once=True).outcome is RunOutcome.DONE
    assert find_failure(hub.backend, "lake") is None


def test_writers_that_cannot_be_started_are_not_registered_and_the_others_stay(
    hub: Hub, tmp_path: Path
) -> None:
    made = pipeline(tmp_path, 10, "one")
    made.run(hub, once=True)
    add(made, tmp_path, "refused")
    add(made, tmp_path, "never")

    def driver_of(hub: Hub, definition: PipelineDefinition, each: WriterDefinition) -> Driver:
        if each.name == "refused":
            raise ConfigError("Spark is not here")
        return direct_driver(hub, definition, each)

    run = PipelineRun(hub, made.definition, until=Until.NOW, driver_of=driver_of)
    with pytest.raises(ConfigError, match="Spark"):
        run.run()
    registered = find(hub.backend.store, "lake")
    assert registered is not None
    assert list(registered.writers) == ["one"]


@pytest.mark.parametrize(("name", "reader"), [("a/b", CountingReader()), ("lake", "in/*.jsonl")])
def test_an_invalid_pipeline_is_refused_when_it_is_defined(name: str, reader: Any) -> None:
    with pytest.raises((InvalidName, InvalidValue)):
        Pipeline(name, reader)


def test_a_run_outlives_an_outage_of_its_hub(tmp_path: Path) -> None:
    backend = UnreliableBackend(MemoryBackend(), Random(1))
    rows_file = tmp_path / "rows"
    rows_file.write_text("10")
    made = Pipeline("lake", CountingReader(rows_file=str(rows_file)))
    path = add(made, tmp_path, "one")
    seconds_down: list[float] = []

    def fail_for_a_while(progress: RunProgress) -> None:
        if len(delivered(path)) == 10 and not seconds_down:
            backend.down = True
            rows_file.write_text("25")
        if backend.down:
            seconds_down.append(progress.seconds)
            backend.down = len(seconds_down) < 4
        if len(delivered(path)) == 25:
            made.stop()

    report = made.run(Hub.from_backend(backend), progress=fail_for_a_while)
    assert report.outcome is RunOutcome.STOPPED
    assert delivered(path) == list(range(25))
