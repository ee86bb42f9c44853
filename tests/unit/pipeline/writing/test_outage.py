"""A sink that cannot be reached: its writer waits and goes on by itself, the others continue."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

import tailrace
from tailrace import Hub, writers
from tailrace import functions as fn
from tailrace.errors import BackendUnavailable, ConfigError, HubClosed, PipelineFailed
from tailrace.operations.explanation import Fact
from tailrace.operations.pipeline.explain_writer import explain_writer
from tailrace.operations.pipeline.interventions import retry
from tailrace.operations.status import status
from tailrace.pipeline.engine.direct import DirectEngine
from tailrace.pipeline.engine.driver import DirectDriver
from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.writer import SinkRefused
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.attempt import AttemptReport
from tailrace.pipeline.writing.fault import Fault, fault_of, fault_without_records
from tailrace.pipeline.writing.sink_outage import RETRY, after_failed_try, is_over
from tailrace.pipeline.writing.writer_ledger import WriterState
from tailrace.source.reader import Until
from tailrace.spark.cluster.application import NoExecutors
from tailrace.testing import ManualClock, MemoryBackend
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import RecordingWriter, delivered
from tests.support.pipelines.running_pipeline import RunningPipeline, add
from tests.support.processes import Child, Report
from tests.support.topics import all_messages
from tests.support.waiting import until


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    """The file with the number of rows, which a test raises while the pipeline runs."""
    file = tmp_path / "rows"
    file.write_text("100")
    return file


@pytest.fixture
def lake(rows_file: Path) -> Pipeline:
    return Pipeline("lake", CountingReader(rows_file=str(rows_file)))


def state_of(running: RunningPipeline, name: str) -> WriterState:
    """Return the state of a writer in a run; that of a new writer before it has started."""
    found = (each.state for each in running.run.state().writers if each.name == f"lake/{name}")
    return next(found, WriterState())


def await_status(running: RunningPipeline, name: str, status: WriterStatus) -> None:
    until(lambda: state_of(running, name).state is status, f"{name} is not {status}")


def lag_of(running: RunningPipeline, name: str) -> int:
    (found,) = (each for each in running.run.state().writers if each.name == f"lake/{name}")
    return found.lag


def numbers(path: Path) -> list[int]:
    table = pyarrow.dataset.dataset(path, format="parquet").to_table()
    found: list[Any] = table["n"].to_pylist()
    return sorted(found)


class TestPolicy:
    def test_delays_grow_to_half_a_minute(self) -> None:
        delays = [RETRY.delay(tries, 0.0).total_seconds() for tries in (1, 2, 3, 6, 7, 10_000)]
        assert delays == [0.5, 1.0, 2.0, 16.0, 30.0, 30.0]

    def test_an_outage_counts_its_tries_and_keeps_its_begin(self) -> None:
        clock = ManualClock()
        first = after_failed_try(None, "down", clock, 0.0, None)
        clock.advance(10)
        second = after_failed_try(first, "still down", clock, 0.0, None)
        assert (second.tries, second.reason) == (2, "still down")
        assert second.since_ms == first.since_ms == second.next_try_ms - 11_000
        assert not second.is_due(clock.monotonic() + 0.99)
        assert second.is_due(clock.monotonic() + 1)

    def test_a_writer_waits_no_longer_than_it_may(self) -> None:
        clock = ManualClock()
        outage = after_failed_try(None, "down", clock, 0.0, 0.2)
        assert outage.is_due(clock.monotonic() + 0.2)
        assert not is_over(outage, clock.monotonic(), 0.2)
        assert is_over(outage, clock.monotonic() + 0.2, 0.2)
        assert not is_over(outage, clock.monotonic() + 10**9, None)


class RetryableError(Exception):
    """An error of a writer of another package, which is no `OSError`."""

    retryable = True


def test_a_writer_on_a_cluster_without_executors_says_that_it_waits_for_them(hub: Hub) -> None:
    reason = "no executor of spark://10.0.0.7:7077 has started"
    pipeline = Pipeline("lake", CountingReader(rows=1))
    pipeline.write("crm", RecordingWriter(""), engine="direct")

    def driver_of(hub: Hub, *_definitions: object) -> DirectDriver:
        driver = DirectDriver(hub)
        driver.engine = WithoutExecutors(reason, hub)
        return driver

    run = PipelineRun(hub, pipeline.definition, until=Until.STOPPED, driver_of=driver_of)
    running = RunningPipeline(run)
    try:
        await_status(running, "crm", WriterStatus.WAITING)
        headline = f"writer lake/crm waits for executors of Spark: {reason}"
        assert run.outages() == [headline]
        explained = explain_writer(hub, "lake/crm")
        assert "for executors of Spark, lag" in explained.headline
        assert Fact("reason", reason) in explained.facts
        assert [remedy.name for remedy in explained.remedies] == ["retry"]
        assert "for executors of Spark, lag" in status(hub).notes[0].what
    finally:
        running.stop()


class WithoutExecutors(DirectEngine):
    """An engine on a cluster that has no executor."""

    def __init__(self, reason: str, hub: Hub) -> None:
        super().__init__(hub)
        self._reason = reason

    def run(self, *_arguments: object) -> list[AttemptReport]:
        raise NoExecutors(self._reason)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ConnectionError("refused"), Fault.OUTAGE),
        (PermissionError(13, "read-only"), Fault.OUTAGE),
        (OSError(28, "no space"), Fault.OUTAGE),
        (BackendUnavailable("locked"), Fault.OUTAGE),
        (tailrace.errors.OutcomeUnknown("no reply"), Fault.OUTAGE),
        (RetryableError("later"), Fault.OUTAGE),
        (OSError(36, "file name too long"), Fault.RECORD),
        (ValueError("a bad row"), Fault.RECORD),
        (SinkRefused("wrong password"), Fault.REFUSAL),
        (HubClosed("closed"), Fault.REFUSAL),
        (tailrace.errors.Fenced("writer", 1, 2), Fault.FENCED),
    ],
)
def test_the_class_of_an_error_decides_whether_a_writer_waits(
    error: Exception, fault: Fault
) -> None:
    assert fault_of(error) is fault
    expected = Fault.REFUSAL if fault is Fault.RECORD else fault
    assert fault_without_records(error) is expected


def test_a_sink_that_is_down_is_waited_for_and_the_writer_goes_on(
    hub: Hub, lake: Pipeline, tmp_path: Path, rows_file: Path
) -> None:
    crm, other = add(lake, tmp_path, "crm"), add(lake, tmp_path, "other")
    running = RunningPipeline(lake.prepare(hub, until=Until.STOPPED))
    until(lambda: len(delivered(crm)) == len(delivered(other)) == 100)
    (crm / "down").touch()
    rows_file.write_text("200")
    await_status(running, "crm", WriterStatus.WAITING)
    until(lambda: len(delivered(other)) == 200)
    waiting = state_of(running, "crm")
    assert waiting.error == "ConnectionError: the sink is down"
    assert waiting.next_try_ms > waiting.since_ms > 0
    (crm / "down").unlink()
    await_status(running, "crm", WriterStatus.RUNNING)
    until(lambda: lag_of(running, "crm") == 0)
    assert running.stop() is RunOutcome.STOPPED
    assert delivered(crm) == list(range(200))


def test_a_sink_that_is_down_at_the_start_is_waited_for_while_the_others_finish(
    hub: Hub, lake: Pipeline, tmp_path: Path
) -> None:
    other = add(lake, tmp_path, "other")
    blocked = tmp_path / "not-mounted"
    blocked.touch()
    lake.write("late", writers.parquet(str(blocked / "out")), engine="direct")
    running = RunningPipeline(lake.prepare(hub, until=Until.NOW))
    until(lambda: len(delivered(other)) == 100)
    await_status(running, "late", WriterStatus.WAITING)
    assert "not-mounted is not writable" in (state_of(running, "late").error or "")
    blocked.unlink()
    until(lambda: running.ending is not None)
    assert running.ending is RunOutcome.DONE
    assert numbers(blocked / "out") == list(range(100))


def test_a_sink_of_another_hub_is_refused_when_it_comes_back(
    hub: Hub, lake: Pipeline, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    lake.write("files", writers.parquet(str(out)), engine="direct")
    with Hub.from_backend(MemoryBackend()) as another:
        lake.run(another, once=True)
    moved = out.rename(tmp_path / "moved")
    out.touch()
    running = RunningPipeline(lake.prepare(hub, until=Until.NOW))
    await_status(running, "files", WriterStatus.WAITING)
    out.unlink()
    moved.rename(out)
    until(lambda: running.ending is not None)
    assert running.ending is RunOutcome.FAILED
    assert "not from the hub" in running.run.failures()[0]
    assert numbers(out) == list(range(100))


def _lock(report: Report, path: str) -> None:
    """Lock a SQLite file, in a process of its own, until killed."""
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        report("locked")
        until(lambda: False, within_s=600)


@pytest.mark.parametrize("locked_at_start", [True, False])
def test_a_sqlite_file_locked_for_longer_than_the_timeout_is_waited_for(
    hub: Hub, lake: Pipeline, tmp_path: Path, rows_file: Path, locked_at_start: bool
) -> None:
    path = tmp_path / "crm.db"
    lake.write("crm", writers.sql(f"sqlite:///{path}?timeout=0.05"), engine="direct")
    other = add(lake, tmp_path, "other")
    if not locked_at_start:
        lake.run(hub, once=True)
        rows_file.write_text("200")
    locker = Child(_lock, str(path))
    assert locker.next_report() == "locked"
    running = RunningPipeline(lake.prepare(hub, until=Until.NOW))
    until(lambda: len(delivered(other)) == int(rows_file.read_text()))
    await_status(running, "crm", WriterStatus.WAITING)
    assert "database is locked" in (state_of(running, "crm").error or "")
    list(locker.kill())
    until(lambda: running.ending is not None)
    assert running.ending is RunOutcome.DONE
    with sqlite3.connect(path) as database:
        rows = [n for (n,) in database.execute("SELECT n FROM numbers ORDER BY n")]
    assert rows == list(range(int(rows_file.read_text())))


def test_a_sqlite_file_that_is_unmounted_is_not_created_on_another_disk(
    hub: Hub, lake: Pipeline, tmp_path: Path, rows_file: Path
) -> None:
    disk, aside = tmp_path / "disk", tmp_path / "aside"
    disk.mkdir()
    lake.write("crm", writers.sql(f"sqlite:///{disk}/crm.db"), engine="direct")
    running = RunningPipeline(lake.prepare(hub, until=Until.STOPPED))
    until(lambda: state_of(running, "crm").rows == 100)
    disk.rename(aside)
    disk.mkdir()
    rows_file.write_text("200")
    await_status(running, "crm", WriterStatus.WAITING)
    assert "crm.db does not exist" in (state_of(running, "crm").error or "")
    assert list(disk.iterdir()) == []
    disk.rmdir()
    aside.rename(disk)
    until(lambda: state_of(running, "crm").rows == 200)
    running.stop()
    with sqlite3.connect(disk / "crm.db") as database:
        assert database.execute("SELECT count(*) FROM numbers").fetchone() == (200,)


def test_a_database_that_comes_back_from_a_backup_gets_the_rows_that_it_lacks(
    hub: Hub, lake: Pipeline, tmp_path: Path, rows_file: Path
) -> None:
    disk, backup = tmp_path / "disk", tmp_path / "backup"
    disk.mkdir()
    lake.write("crm", writers.sql(f"sqlite:///{disk}/crm.db"), engine="direct")
    lake.run(hub, once=True)
    shutil.copytree(disk, backup)
    rows_file.write_text("200")
    running = RunningPipeline(lake.prepare(hub, until=Until.STOPPED))
    until(lambda: state_of(running, "crm").rows == 200)
    shutil.rmtree(disk)
    rows_file.write_text("300")
    await_status(running, "crm", WriterStatus.WAITING)
    backup.rename(disk)
    until(lambda: lag_of(running, "crm") == 0)
    running.stop()
    with sqlite3.connect(disk / "crm.db") as database:
        rows = [n for (n,) in database.execute("SELECT n FROM numbers ORDER BY n")]
    assert rows == list(range(300))


def test_a_directory_replaced_by_a_file_and_back_is_waited_for(
    hub: Hub, lake: Pipeline, tmp_path: Path, rows_file: Path
) -> None:
    out, aside = tmp_path / "out", tmp_path / "aside"
    lake.write("files", writers.parquet(str(out)), engine="direct")
    running = RunningPipeline(lake.prepare(hub, until=Until.STOPPED))
    until(lambda: state_of(running, "files").rows == 100)
    out.rename(aside)
    out.touch()
    rows_file.write_text("200")
    await_status(running, "files", WriterStatus.WAITING)
    out.unlink()
    aside.rename(out)
    until(lambda: state_of(running, "files").rows == 200)
    assert running.stop() is RunOutcome.STOPPED
    assert numbers(out) == list(range(200))


def test_a_directory_that_is_unmounted_is_not_created_on_another_disk(
    hub: Hub, lake: Pipeline, tmp_path: Path, rows_file: Path
) -> None:
    out, aside = tmp_path / "out", tmp_path / "aside"
    lake.write("files", writers.parquet(str(out)), engine="direct")
    running = RunningPipeline(lake.prepare(hub, until=Until.STOPPED))
    until(lambda: state_of(running, "files").rows == 100)
    out.rename(aside)
    rows_file.write_text("200")
    await_status(running, "files", WriterStatus.WAITING)
    assert "out does not exist" in (state_of(running, "files").error or "")
    assert not out.exists()
    aside.rename(out)
    until(lambda: state_of(running, "files").rows == 200)
    running.stop()
    assert numbers(out) == list(range(200))


def _run_unprivileged(report: Report, directory: str) -> None:
    """Run a pipeline into a directory as a user who may not write to it at first."""
    lake = Pipeline("lake", CountingReader(rows_file=f"{directory}/rows"))
    with Hub.from_backend(MemoryBackend()) as hub:
        lake.write("files", writers.parquet(f"{directory}/first"), engine="direct")
        lake.run(hub, once=True)  # The other user may not be able to import all that it needs.
    if os.geteuid() == 0:
        os.setuid(65534)
    lake.writers = ()
    lake.write("files", writers.parquet(f"{directory}/out"), engine="direct")
    with Hub.from_backend(MemoryBackend()) as hub:
        running = RunningPipeline(lake.prepare(hub, until=Until.NOW))
        await_status(running, "files", WriterStatus.WAITING)
        report(state_of(running, "files").error)
        until(lambda: running.ending is not None)
        report(running.ending)


def test_a_directory_that_is_not_writable_is_waited_for() -> None:
    # Other users cannot pass through the directories that pytest makes.
    with tempfile.TemporaryDirectory(prefix="tailrace-") as directory:
        os.chmod(directory, 0o755)
        Path(directory, "rows").write_text("100")
        out = Path(directory, "out")
        out.mkdir(mode=0o555)
        child = Child(_run_unprivileged, directory)
        assert "out is not writable" in child.next_report()
        out.chmod(0o777)
        assert child.next_report() is RunOutcome.DONE
        assert numbers(out) == list(range(100))


def test_a_topic_whose_hub_is_missing_is_waited_for(
    hub: Hub, lake: Pipeline, tmp_path: Path
) -> None:
    warehouse, made = tmp_path / "warehouse", tmp_path / "made"
    lake.write("copies", writers.topic("copies", hub=str(warehouse)), engine="direct")
    running = RunningPipeline(lake.prepare(hub, until=Until.NOW))
    await_status(running, "copies", WriterStatus.WAITING)
    assert "no hub in" in (state_of(running, "copies").error or "")
    with tailrace.open(made) as other:
        other.create_topic("copies", partitions=1)
    made.rename(warehouse)  # A hub without the topic would refuse the writer.
    until(lambda: running.ending is not None)
    assert running.ending is RunOutcome.DONE
    with tailrace.open(warehouse) as other:
        assert other.topic("copies").storage_topics[0].ends == [100]


def test_a_topic_whose_hub_is_removed_and_brought_back_gets_every_record_once(
    hub: Hub, lake: Pipeline, tmp_path: Path, rows_file: Path
) -> None:
    warehouse, aside = tmp_path / "warehouse", tmp_path / "aside"
    with tailrace.open(warehouse) as other:
        other.create_topic("copies", partitions=1)
    lake.write("copies", writers.topic("copies", hub=str(warehouse)), engine="direct")
    running = RunningPipeline(lake.prepare(hub, until=Until.STOPPED))
    until(lambda: state_of(running, "copies").rows == 100)
    warehouse.rename(aside)
    rows_file.write_text("200")
    await_status(running, "copies", WriterStatus.WAITING)
    aside.rename(warehouse)
    until(lambda: state_of(running, "copies").rows == 200)
    assert running.stop() is RunOutcome.STOPPED
    with tailrace.open(warehouse) as other:
        assert [message.value["n"] for message in all_messages(other.topic("copies"))] == list(
            range(200)
        )


def test_a_sink_that_refuses_its_writer_fails_it_and_parks_nothing(
    hub: Hub, lake: Pipeline, tmp_path: Path
) -> None:
    crm = add(lake, tmp_path, "crm", on_error="park")
    (crm / "refuses").touch()
    with pytest.raises(PipelineFailed, match="SinkRefused: wrong password"):
        lake.run(hub, once=True)
    assert hub.topic("lake.dead-letters").storage_topics[0].ends == [0]
    (crm / "refuses").unlink()
    assert lake.run(hub, once=True).outcome is RunOutcome.DONE
    assert delivered(crm) == list(range(100))


def test_a_sink_that_refuses_its_writer_at_the_start_is_a_configuration_error(
    hub: Hub, lake: Pipeline, tmp_path: Path
) -> None:
    class Locked(RecordingWriter, frozen=True):
        def check(self) -> str:
            raise SinkRefused("wrong password")

    lake.write("crm", Locked(str(tmp_path)), engine="direct")
    with pytest.raises(ConfigError, match=r"writer[.]crm: wrong password"):
        lake.run(hub, once=True)
    assert hub.topics() == []


def test_a_writer_whose_sink_does_not_come_back_in_time_fails(
    hub: Hub, lake: Pipeline, tmp_path: Path
) -> None:
    crm = add(lake, tmp_path, "crm")
    (crm / "down").touch()
    with pytest.raises(PipelineFailed, match=r"the sink is down · .* in time, after \d attempts"):
        lake.run(hub, once=True, wait="300ms")
    (crm / "down").unlink()
    assert lake.run(hub, once=True).outcome is RunOutcome.DONE
    assert delivered(crm) == list(range(100))


def test_a_run_that_is_stopped_while_a_writer_waits_has_work_left(
    hub: Hub, lake: Pipeline, tmp_path: Path
) -> None:
    crm = add(lake, tmp_path, "crm")
    (crm / "down").touch()
    running = RunningPipeline(lake.prepare(hub, until=Until.NOW))
    await_status(running, "crm", WriterStatus.WAITING)
    assert running.stop() is RunOutcome.WAITING
    assert "lake/crm waits for its sink" in running.run.outages()[0]
    (crm / "down").unlink()
    assert lake.run(hub, once=True).outcome is RunOutcome.DONE
    assert delivered(crm) == list(range(100))


def test_a_retry_of_a_waiting_writer_tries_at_once(
    hub: Hub, lake: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly = tailrace.Retry(first="1h", max="1h")
    monkeypatch.setattr("tailrace.pipeline.writing.sink_outage.RETRY", hourly)
    crm = add(lake, tmp_path, "crm")
    (crm / "down").touch()
    running = RunningPipeline(lake.prepare(hub, until=Until.STOPPED))
    await_status(running, "crm", WriterStatus.WAITING)
    (crm / "down").unlink()
    report = retry(hub, "lake/crm")
    assert report.what == "tries its sink again"
    until(lambda: len(delivered(crm)) == 100)
    running.stop()


def test_a_writer_that_waits_one_at_a_time_goes_on_one_at_a_time(
    hub: Hub, lake: Pipeline, tmp_path: Path
) -> None:
    def break_at_50(document: dict[str, Any]) -> dict[str, Any]:
        if document["n"] == 20:
            raise ValueError("bad")
        if document["n"] == 50 and not (tmp_path / "broken").exists():
            (tmp_path / "broken").touch()
            (tmp_path / "crm" / "down").touch()
        return document

    crm = add(lake, tmp_path, "crm", on_error="park", functions=[fn.python(break_at_50)])
    running = RunningPipeline(lake.prepare(hub, until=Until.NOW))
    await_status(running, "crm", WriterStatus.WAITING)
    (crm / "down").unlink()
    until(lambda: running.ending is not None)
    assert running.ending is RunOutcome.DONE
    assert delivered(crm) == [n for n in range(100) if n != 20]
