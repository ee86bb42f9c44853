"""Declarative Pipelines of Spark that read and write topics."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tests.integration.topics_on_spark import numbers

pytestmark = [pytest.mark.soak, pytest.mark.part("spark"), pytest.mark.timeout(1800)]

RUN_S = 600

SPECIFICATION = """\
name: shop
storage: file://{directory}/storage
libraries:
  - glob:
      include: transformations/**
"""

FLOW = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink("copies", "tailrace", {{"hub": "{directory}/hub", "topic": "copies"}})


@dp.append_flow(target="copies")
def copy():
    orders = spark.readStream.format("tailrace").option("hub", "{directory}/hub")
    orders = orders.option("subscribe", "orders").option("startingOffsets", "earliest")
    return orders.load().select("key", "value")
"""


def run(directory: Path) -> None:
    """Run the pipeline until it has handled what is there."""
    command = Path(sys.executable).with_name("spark-pipelines")
    ours = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [command, "run", "--spec", directory / "spark-pipeline.yml"],
        cwd=directory,
        env={**os.environ, **ours, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]


def test_a_flow_reads_a_topic_and_writes_each_row_once_to_another(tmp_path: Path) -> None:
    for module in ("grpc", "grpc_status", "yaml", "pandas"):  # Of the extra pyspark[pipelines].
        pytest.importorskip(module)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(directory=tmp_path))
    (tmp_path / "transformations" / "copy.py").write_text(FLOW.format(directory=tmp_path))
    with tailrace.open(tmp_path / "hub") as hub:
        orders = hub.create_topic("orders", bytes, partitions=2)
        copies = hub.create_topic("copies", bytes, partitions=2)
        for first in (0, 100):
            orders.push_many(numbers(100, first))
            run(tmp_path)
        found = [
            int(value.as_py())
            for number in range(2)
            for batch in copies.batches(0, number)
            for value in batch["value"]
        ]
    assert sorted(found) == list(range(200))
