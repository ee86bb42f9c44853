"""Pipelines on a real cluster: whose master and settings hold, and a cluster without executors."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.pipelines.lake_file import WITHIN_S, LakeFile
from tests.support.servers.shared import Unavailable
from tests.support.servers.spark_cluster import SparkCluster
from tests.support.waiting import until

pytestmark = [
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.part("spark"),
    pytest.mark.soak,
    pytest.mark.timeout(900),
]

STARVED = "Initial job has not accepted any resources"  # What Spark itself logs after 15 s.
REPORTED_S = 15.0
SPARK = """
[pipeline.spark]
spark.executor.memory = "600m"
"spark.cores.max" = 1
"""
JOB = """
import sys
import tailrace
with tailrace.open("hub") as hub:
    report = tailrace.Pipeline.from_file("lake.toml").run(hub, once=True)
print("rows:", report.writer("files").rows, flush=True)
"""


@pytest.fixture
def cluster(spark_cluster: SparkCluster) -> Iterator[SparkCluster]:
    spark_cluster.await_workers()
    yield spark_cluster
    spark_cluster.await_idle()


@pytest.fixture
def lake(cluster: SparkCluster, tmp_path: Path) -> LakeFile:
    (tmp_path / "job.py").write_text(JOB)
    return LakeFile(tmp_path, cluster.environment, SPARK)


def last_application(cluster: SparkCluster) -> dict[str, Any]:
    """Return the application that ended last, as the master lists it."""
    applications: Any = cluster.state()["completedapps"]
    newest: dict[str, Any] = max(applications, key=lambda each: str(each["id"]))
    return newest


def test_spark_defaults_name_the_master_and_conf_replaces_the_file_which_replaces_them(
    cluster: SparkCluster, lake: LakeFile
) -> None:
    defaults = Path(cluster.environment["SPARK_CONF_DIR"], "spark-defaults.conf").read_text()
    own = lake.directory / "spark-defaults.conf"
    own.write_text(f"{defaults}\nspark.master {cluster.url}\n")
    command = ["pipeline", "run", "lake.toml", "--once", "--conf", "spark.executor.memory=512m"]
    lake.tailrace(*command, SPARK_CONF_DIR=str(lake.directory))
    ended = last_application(cluster)
    assert (ended["name"], ended["memoryperexecutor"]) == ("lake", 512)
    assert ended["cores"] == 1


def test_a_pipeline_runs_on_the_master_of_spark_submit(
    cluster: SparkCluster, lake: LakeFile
) -> None:
    submit = str(Path(sys.executable).with_name("spark-submit"))
    printed = lake.run(submit, "--master", cluster.url, "job.py").stdout
    assert "rows: 2" in printed
    ended = last_application(cluster)
    assert (ended["name"], ended["memoryperexecutor"]) == ("lake", 600)


def test_a_pipeline_without_executors_says_so_in_15_seconds_and_continues_when_there_are_some(
    cluster: SparkCluster, lake: LakeFile
) -> None:
    for worker in (0, 1):
        cluster.stop_worker(worker)
    cluster.await_workers()
    process = lake.start("--once", "--master", cluster.url)
    try:
        until(lambda: b'"lag":' in lake.output.read_bytes(), "Spark", within_s=WITHIN_S)
        reason = f"no executor of {cluster.url} has started"
        until(lambda: reason in lake.output.read_text(), "no reason", within_s=REPORTED_S)
        spark_log = lake.directory / "hub" / "hub.spark" / "spark.log"
        assert STARVED not in spark_log.read_text()
        for subject in ("lake", "lake/files"):
            assert reason in lake.tailrace("explain", subject).stdout
        assert "for executors of Spark" in lake.tailrace("explain", "lake/files").stdout
        assert "for executors of Spark" in lake.tailrace("status").stdout
        assert reason in lake.tailrace("pipeline", "status", "-o", "json").stdout
        for worker in (0, 1):
            cluster.restart_worker(worker)
        assert process.wait(WITHIN_S) == 0, lake.output.read_text()
    finally:
        process.kill()
        process.wait()
        for worker in (0, 1):
            cluster.restart_worker(worker)


def test_a_pipeline_that_has_nothing_to_do_does_not_wait_for_executors(
    cluster: SparkCluster, lake: LakeFile
) -> None:
    run = ["pipeline", "run", "lake.toml", "--once", "--master", cluster.url]
    lake.tailrace(*run)
    cluster.await_idle()
    try:
        for worker in (0, 1):
            cluster.stop_worker(worker)
        cluster.await_workers()
        assert "waits for executors" not in lake.tailrace(*run).stderr
    finally:
        for worker in (0, 1):
            cluster.restart_worker(worker)


def test_an_executor_without_the_python_of_the_tasks_is_named_and_gets_them_once_it_has_it(
    cluster: SparkCluster, lake: LakeFile
) -> None:
    chosen = lake.directory / "venv" / "python"
    chosen.parent.mkdir()
    chosen.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    chosen.chmod(0o755)
    with ExitStack() as hidden:
        try:
            for worker in (0, 1):
                hidden.enter_context(cluster.hidden(chosen.parent, worker))
        except Unavailable as reason:
            pytest.skip(str(reason))
        conf = ["--conf", f"spark.pyspark.python={chosen}"]
        process = lake.start("--once", "--master", cluster.url, *conf)
        try:
            sentence = f"the executor on host 127.0.0.1 cannot run the Python {chosen}: No such"
            until(lambda: sentence in lake.output.read_text(), "no reason", within_s=WITHIN_S)
            assert sentence in lake.tailrace("explain", "lake/files").stdout
            hidden.close()
            assert process.wait(WITHIN_S) == 0, lake.output.read_text()
        finally:
            process.kill()
            process.wait()
    assert orders_of(lake) == [1, 2]


def add_order(lake: LakeFile, number: int) -> None:
    """Append an order to the file that the pipeline reads."""
    with (lake.directory / "in" / "orders.jsonl").open("a") as orders:
        orders.write(f'{{"id": {number}}}\n')


def orders_of(lake: LakeFile) -> list[object]:
    """Return the orders in the Parquet files, by the names of the files."""
    files = sorted((lake.directory / "out" / "orders").glob("*.parquet"))
    return [number for each in files for number in pq.read_table(each)["id"].to_pylist()]


@pytest.mark.parametrize("end", [SparkCluster.remove_applications, SparkCluster.restart_master])
def test_a_pipeline_continues_after_its_cluster_ended_the_application(
    cluster: SparkCluster, lake: LakeFile, end: Callable[[SparkCluster], None]
) -> None:
    """A master removes an application whose executors fail too often, and keeps none at its end."""
    process = lake.start("--master", cluster.url)
    try:
        until(lambda: orders_of(lake) == [1, 2], "not delivered", within_s=WITHIN_S)
        end(cluster)
        until(lambda: not cluster.executor_pids(), "executors are left", within_s=WITHIN_S)
        add_order(lake, 3)
        until(lambda: orders_of(lake) == [1, 2, 3], "not delivered", within_s=WITHIN_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0, lake.output.read_text()
    finally:
        process.kill()
        process.wait()


def test_the_pipeline_of_the_demo_runs_on_a_cluster(cluster: SparkCluster, lake: LakeFile) -> None:
    counts = ["--orders", "1000", "--deliveries", "1200", "--sales", "2000", "--directory", "demo"]
    lake.tailrace("demo", *counts, "--master", cluster.url)
    assert last_application(cluster)["name"] == "demo"
