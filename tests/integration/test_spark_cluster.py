"""The cluster of the tests: executors that are seen, killed, replaced, and on another host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import is_alive, kill_now
from tests.support.servers.shared import Unavailable
from tests.support.servers.spark_cluster import SparkCluster
from tests.support.waiting import until

pytestmark = [
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.part("spark"),
    pytest.mark.soak,
    pytest.mark.timeout(300),
]

PROGRAM = """
import os, sys
from pyspark.sql import SparkSession

path, spark = sys.argv[1], SparkSession.builder.master(sys.argv[2]).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
def seen(number, path=path):
    import time
    time.sleep(0.5)
    return os.path.exists(path)
for _ in sys.stdin:
    print(spark.sparkContext.parallelize(range(4), 4).map(seen).collect(), flush=True)
"""


def test_a_cluster_loses_executors_and_workers_and_hides_a_directory_from_one(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    (tmp_path / "shared").touch()
    driver = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "shared"), spark_cluster.url],
        env=spark_cluster.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    asked, answers = driver.stdin, driver.stdout
    assert asked is not None
    assert answers is not None

    def ask() -> str:
        asked.write("go\n")
        asked.flush()
        return answers.readline().strip()

    try:
        assert ask() == "[True, True, True, True]"
        until(lambda: len(spark_cluster.executor_pids()) == 2)
        victim = spark_cluster.executor_pids(0)[0]
        kill_now(victim)
        assert ask() == "[True, True, True, True]"
        until(lambda: not is_alive(victim))
        try:
            with spark_cluster.hidden(tmp_path, worker=1):
                until(lambda: len(spark_cluster.executor_pids()) == 2)
                assert "False" in ask()
        except Unavailable as reason:
            pytest.skip(str(reason))
        spark_cluster.stop_worker(1)
        assert ask() == "[True, True, True, True]"
        spark_cluster.restart_worker(1)
    finally:
        asked.close()
        driver.wait(60)
    spark_cluster.await_idle()
