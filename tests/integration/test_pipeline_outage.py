"""Pipelines whose sinks fail for a while: they go on by themselves, each row is written once."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace import Pipeline, writers
from tailrace.errors import ConfigError
from tailrace.operations.explain import explain
from tailrace.operations.status import status
from tailrace.pipeline.engine.run_session import RunSession
from tailrace.pipeline.engine.spark_driver import spark_drivers
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.source.reader import Until
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.killed_driver import RUN_S, Driver
from tests.support.pipelines.recording_writer import RecordingWriter, delivered
from tests.support.pipelines.running_pipeline import RunningPipeline
from tests.support.pipelines.writer_bench import WriterBench
from tests.support.servers.postgres import OwnPostgres
from tests.support.waiting import DEADLINE_S, until

ROWS = 5000


def status_of(running: RunningPipeline, name: str) -> WriterStatus | None:
    found = (each.state.state for each in running.run.state().writers if each.name.endswith(name))
    return next(found, None)


def reason_of(hub: tailrace.Hub, writer: str) -> str:
    return next(fact.what for fact in explain(hub, writer).facts if fact.name == "reason")


def rows_in(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY n")]


def has_table(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT to_regclass('numbers')").fetchone() != (None,)


def test_a_postgres_stopped_in_the_middle_and_started_again_has_every_row_once(
    tmp_path: Path, own_postgres: OwnPostgres
) -> None:
    rows_file = tmp_path / "rows"
    rows_file.write_text(str(ROWS))
    lake = Pipeline("lake", CountingReader(rows_file=str(rows_file), batch=500))
    lake.write("crm", writers.sql(own_postgres.url), engine="direct", batch_rows=200)
    lake.write("other", RecordingWriter(str(tmp_path)), engine="direct")
    with tailrace.open(tmp_path / "hub") as hub:
        running = RunningPipeline(lake.prepare(hub, until=Until.STOPPED))
        until(lambda: has_table(own_postgres.url))
        own_postgres.stop()
        rows_file.write_text(str(2 * ROWS))
        until(lambda: status_of(running, "crm") is WriterStatus.WAITING)
        until(lambda: len(delivered(tmp_path)) == 2 * ROWS)
        # The first reason may be a commit that the server did not answer; the next try replaces it.
        until(lambda: "is unavailable" in reason_of(hub, "lake/crm"))
        assert explain(hub, "lake/crm").headline.startswith("WAITING since ")
        (note,) = [each for each in status(hub).notes if each.subject == "writer lake/crm"]
        assert note.what.startswith("WAITING since ")
        own_postgres.start()
        until(lambda: running.run.state().writers[0].lag == 0)
        assert running.stop() is RunOutcome.STOPPED
    assert rows_in(own_postgres.url) == list(range(2 * ROWS))


def test_a_postgres_that_is_down_at_the_start_is_waited_for(
    tmp_path: Path, own_postgres: OwnPostgres
) -> None:
    own_postgres.stop()
    lake = Pipeline("lake", CountingReader(100))
    lake.write("crm", writers.sql(own_postgres.url), engine="direct")
    with tailrace.open(tmp_path / "hub") as hub:
        running = RunningPipeline(lake.prepare(hub, until=Until.NOW))
        until(lambda: status_of(running, "crm") is WriterStatus.WAITING)
        own_postgres.start()
        until(lambda: running.ending is not None)
    assert running.ending is RunOutcome.DONE
    assert rows_in(own_postgres.url) == list(range(100))


def test_a_login_that_postgres_refuses_is_a_configuration_error(
    tmp_path: Path, postgres_url: str
) -> None:
    lake = Pipeline("lake", CountingReader(100))
    url = postgres_url.replace("postgres@", "nobody@")
    lake.write("crm", writers.sql(url), engine="direct")
    with (
        tailrace.open(tmp_path / "hub") as hub,
        pytest.raises(ConfigError, match=r'refuses the writer: .*role "nobody" does not exist'),
    ):
        lake.run(hub, once=True)


def test_missing_rights_fail_the_writer_and_park_nothing(tmp_path: Path, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE ROLE reader_only LOGIN")
    try:
        lake = Pipeline("lake", CountingReader(100))
        url = postgres_url.replace("postgres@", "reader_only@")
        lake.write("crm", writers.sql(url), engine="direct", on_error="park")
        with tailrace.open(tmp_path / "hub") as hub:
            with pytest.raises(tailrace.PipelineFailed, match="permission denied for schema"):
                lake.run(hub, once=True)
            assert hub.topic("lake.dead-letters").storage_topics[0].ends == [0]
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("DROP ROLE reader_only")


@pytest.mark.part("pipelines")
@pytest.mark.timeout(3600)
def test_an_outage_under_kills_loses_no_row_and_writes_none_twice(
    tmp_path: Path, own_postgres: OwnPostgres, record_evidence: RecordEvidence
) -> None:
    rows = count("rows", test=20_000, soak=200_000)
    outage_s, kills = count("outage_s", test=3, soak=60), count("kills", test=2, soak=15)
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    driver = Driver(tmp_path, own_postgres.url, rows, "direct")
    process = driver.start()
    try:
        driver.await_share(process, "postgres", 0.2)
        own_postgres.stop(signal.SIGQUIT)
        ends, since_ms = time.monotonic() + outage_s, 0
        for left in range(kills, 0, -1):
            since_ms = driver.await_waiting(process, "postgres", since_ms)
            time.sleep(chance.uniform(0.2, 1.8) * max(0.0, ends - time.monotonic()) / left / 2)
            assert process.poll() is None, "the program gave up"
            process.kill()
            process.wait()
            process = driver.start()
        driver.await_waiting(process, "postgres", since_ms)
        time.sleep(max(0.0, ends - time.monotonic()))
        assert process.poll() is None, "the program gave up"
        own_postgres.start()
        assert process.wait(RUN_S) == 0
    finally:
        process.kill()
        process.wait()
    wrong = driver.wrong()
    what = f"kills of a direct driver during an outage of {outage_s} s"
    record_evidence("pipelines", what, kills, [seed], sum(wrong.values()))
    assert wrong == {}, f"seed {seed}"


def test_an_outage_that_an_executor_meets_is_waited_for(bench: WriterBench, tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    bench.options = {"on_error": "park"}
    bench.append("A" * 100)
    (sink / "down").touch()
    run = bench.start()
    run.drain()
    assert run.outage is not None
    assert run.outage.reason == "ConnectionError: the sink is down"
    plan = bench.ledger().plan
    assert plan is not None
    (sink / "down").unlink()
    until(lambda: run.try_is_due)
    run.drain()
    assert bench.state is WriterStatus.RUNNING
    assert (bench.mark, bench.dead_letters()) == (100, [])
    assert delivered(sink) == list(range(100))


def test_a_refusal_that_an_executor_meets_fails_the_writer(
    bench: WriterBench, tmp_path: Path
) -> None:
    bench.options = {"on_error": "park"}
    bench.append("A" * 100)
    (tmp_path / "sink" / "refuses").touch()
    run = bench.run()
    assert (run.failed, bench.dead_letters()) == (True, [])
    assert bench.ledger().state.error == "SinkRefused: wrong password"


@pytest.mark.xdist_group("spark")
def test_a_writer_on_spark_goes_on_when_its_sink_is_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.touch()
    rows_file = tmp_path / "rows"
    rows_file.write_text("100")
    lake = Pipeline("lake", CountingReader(rows_file=str(rows_file)))
    lake.write("files", writers.file(str(out)))
    with tailrace.open(tmp_path / "hub") as hub:
        drivers = spark_drivers(RunSession(lambda: spark))
        running = RunningPipeline(
            PipelineRun(hub, lake.definition, until=Until.STOPPED, driver_of=drivers)
        )
        until(lambda: status_of(running, "files") is WriterStatus.WAITING)
        out.unlink()
        until(lambda: status_of(running, "files") is WriterStatus.RUNNING)
        out.rename(tmp_path / "aside")
        rows_file.write_text("200")
        until(lambda: status_of(running, "files") is WriterStatus.WAITING)
        (tmp_path / "aside").rename(out)
        until(lambda: running.run.state().writers[0].state.rows == 200)
        assert running.stop() is RunOutcome.STOPPED
    lines = [line for file in out.glob("numbers/*") for line in file.read_text().splitlines()]
    assert sorted(lines) == sorted(f'{{"n":{n}}}' for n in range(200))


@pytest.mark.xdist_group("spark")
def test_a_sink_of_sparks_own_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mount").touch()
    writer = writers.spark("csv", {"path": str(tmp_path / "mount/csv")}, schema="n BIGINT")
    with tailrace.open(tmp_path / "hub") as hub:
        bench = WriterBench(hub, spark_drivers(RunSession(lambda: spark)), writer)
        bench.append("A" * 100)
        run = bench.start()
        run.drain()
        assert run.outage is not None
        assert "NotDirectoryException" in run.outage.reason
        (tmp_path / "mount").unlink()
        until(lambda: run.try_is_due)
        run.drain()
        assert (bench.state, bench.mark) == (WriterStatus.RUNNING, 100)


@pytest.mark.part("pipelines")
def test_a_connection_lost_during_a_commit_is_resolved_by_what_the_database_has(
    tmp_path: Path, own_postgres: OwnPostgres
) -> None:
    """The server is stopped again and again, at any instant of a transaction."""
    stops, rows = count("stops", test=3, soak=30), count("rows", test=3000, soak=30_000)
    lake = Pipeline("lake", CountingReader(rows, batch=500))
    lake.write("crm", writers.sql(own_postgres.url), engine="direct", batch_rows=50)
    with tailrace.open(tmp_path / "hub") as hub:
        running = RunningPipeline(lake.prepare(hub, until=Until.NOW))
        for _ in range(stops):
            time.sleep(random.uniform(0.2, 0.6))
            own_postgres.stop(random.choice([signal.SIGINT, signal.SIGQUIT]))
            own_postgres.start()
        until(lambda: running.ending is not None, within_s=DEADLINE_S + rows / 100)
    assert running.ending is RunOutcome.DONE
    assert rows_in(own_postgres.url) == list(range(rows))
