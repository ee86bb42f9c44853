"""Pipelines on a real cluster: whose master and settings hold, and a cluster without executors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.spark_cluster import SparkCluster
from tests.support.waiting import until

pytestmark = [
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.part("spark"),
    pytest.mark.soak,
    pytest.mark.timeout(900),
]

TAILRACE = [sys.executable, "-m", "tailrace", "--hub", "hub"]
WITHIN_S = 300
STARVED = "Initial job has not accepted any resources"  # What Spark itself logs after 15 s.
FILE = """
[pipeline]
name = "lake"
[pipeline.spark]
spark.executor.memory = "600m"
"spark.cores.max" = 1
[reader]
type = "file"
path = "in/*.jsonl"
[writer.files]
type = "parquet"
path = "out/"
"""
JOB = """
import sys
import tailrace
with tailrace.open("hub") as hub:
    report = tailrace.Pipeline.from_file("lake.toml").run(hub, once=True)
print("rows:", report.writer("files").rows, flush=True)
"""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "lake.toml").write_text(FILE)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


@pytest.fixture
def cluster(spark_cluster: SparkCluster) -> Iterator[SparkCluster]:
    spark_cluster.await_workers()
    yield spark_cluster
    spark_cluster.await_idle()


def run(cluster: SparkCluster, directory: Path, *command: str, **variables: str) -> str:
    """Run a command, and return what it prints."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=cluster.environment | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def last_application(cluster: SparkCluster) -> dict[str, Any]:
    """Return the application that ended last, as the master lists it."""
    applications: Any = cluster.state()["completedapps"]
    newest: dict[str, Any] = max(applications, key=lambda each: str(each["id"]))
    return newest


def test_spark_defaults_name_the_master_and_conf_replaces_the_file_which_replaces_them(
    cluster: SparkCluster, lake: Path
) -> None:
    defaults = Path(cluster.environment["SPARK_CONF_DIR"], "spark-defaults.conf").read_text()
    (lake / "spark-defaults.conf").write_text(f"{defaults}\nspark.master {cluster.url}\n")
    command = [*TAILRACE, "pipeline", "run", "lake.toml", "--once"]
    command += ["--conf", "spark.executor.memory=512m"]
    run(cluster, lake, *command, SPARK_CONF_DIR=str(lake))
    ended = last_application(cluster)
    assert (ended["name"], ended["memoryperexecutor"]) == ("lake", 512)
    assert ended["cores"] == 1


def test_a_pipeline_runs_on_the_master_of_spark_submit(cluster: SparkCluster, lake: Path) -> None:
    submit = str(Path(sys.executable).with_name("spark-submit"))
    printed = run(cluster, lake, submit, "--master", cluster.url, "job.py")
    assert "rows: 2" in printed
    ended = last_application(cluster)
    assert (ended["name"], ended["memoryperexecutor"]) == ("lake", 600)


def test_a_pipeline_without_executors_says_so_and_continues_when_there_are_some(
    cluster: SparkCluster, lake: Path
) -> None:
    for worker in (0, 1):
        cluster.stop_worker(worker)
    cluster.await_workers()
    progress = lake / "progress"
    with progress.open("wb") as output:
        process = subprocess.Popen(
            [*TAILRACE, "pipeline", "run", "lake.toml", "--once", "--master", cluster.url],
            cwd=lake,
            env=cluster.environment,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: b'"lag":' in progress.read_bytes(), "Spark", within_s=WITHIN_S)
        reason = f"no executor of {cluster.url} has started"
        until(lambda: reason in progress.read_text(), "no reason", within_s=WITHIN_S)
        assert STARVED not in (lake / "hub" / "hub.spark" / "spark.log").read_text()
        explained = run(cluster, lake, *TAILRACE, "explain", "lake/files")
        assert "for executors of Spark" in explained
        assert reason in explained
        listed = json.loads(run(cluster, lake, *TAILRACE, "pipeline", "status", "-o", "json"))
        assert reason in json.dumps(listed)
        for worker in (0, 1):
            cluster.restart_worker(worker)
        assert process.wait(WITHIN_S) == 0, progress.read_text()
    finally:
        process.kill()
        process.wait()
        for worker in (0, 1):
            cluster.restart_worker(worker)


def test_the_pipeline_of_the_demo_runs_on_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    counts = ["--orders", "1000", "--sales", "2000", "--directory", "demo"]
    run(cluster, tmp_path, *TAILRACE[:3], "demo", *counts, "--master", cluster.url)
    assert last_application(cluster)["name"] == "demo"
