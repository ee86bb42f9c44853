"""Topics read on a cluster: by executors that see the hub, and by executors that do not."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import tailrace
from tests.integration.topics_on_spark import numbers
from tests.support.servers.shared import Unavailable
from tests.support.servers.spark_cluster import SparkCluster
from tests.support.spark_errors import tailrace_message

pytestmark = [
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.part("spark"),
    pytest.mark.soak,
    pytest.mark.timeout(600),
]

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import tailrace.spark

spark = SparkSession.builder.master(sys.argv[1]).getOrCreate()
tailrace.spark.register(spark)
topic = spark.read.format("tailrace").load(sys.argv[2])
print(topic.count(), topic.where("partition = 1").rdd.getNumPartitions())
"""


def drive(cluster: SparkCluster, topic: Path) -> subprocess.CompletedProcess[str]:
    """Read a topic on the cluster."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.url, str(topic)],
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    cluster.await_idle()
    return done


def test_executors_read_a_hub_that_they_see_and_name_their_host_if_they_do_not(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    with tailrace.open(tmp_path / "hub") as hub:
        hub.create_topic("orders", bytes, partitions=2).push_many(numbers(100))
    done = drive(spark_cluster, tmp_path / "hub" / "orders")
    assert done.stdout == "100 1\n", done.stderr
    with ExitStack() as hidden:
        try:
            for worker in (0, 1):
                hidden.enter_context(spark_cluster.hidden(tmp_path / "hub", worker))
        except Unavailable as reason:
            pytest.skip(str(reason))
        blind = drive(spark_cluster, tmp_path / "hub" / "orders")
    said = tailrace_message(RuntimeError(blind.stderr)) or blind.stderr
    assert said.startswith("host ")
    assert f"does not see the hub {tmp_path / 'hub'} · make its directory visible" in said
