"""Topics over Spark Connect, and in Declarative Pipelines, which use it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tailrace
from tests.integration.topics_on_spark import numbers

pytest.importorskip("grpc", reason="Spark Connect is not installed: extra connect")
pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.part("spark"),
    pytest.mark.soak,
    pytest.mark.timeout(600),
]

TIMEOUT_S = 580
BIN = Path(sys.executable).parent

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import tailrace.spark

spark = SparkSession.builder.remote("local[2]").getOrCreate()
path = sys.argv[1] + "/orders"
print(spark.read.format("tailrace").load(path).count())
tailrace.spark.register(spark)
topic = spark.read.format("tailrace").load(path)
rows = spark.sql("SELECT 'c1' AS key, 'by hand' AS value")
writing = rows.write.format("tailrace").option("hub", sys.argv[1]).option("topic", "orders")
print(topic.where("partition = 0").count() + topic.where("partition = 1").count())
writing.mode("append").save()
print(topic.count())
stream = spark.readStream.format("tailrace").option("startingOffsets", "earliest").load(path)
query = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
query.awaitTermination()
print(spark.table("seen").count())
"""

SPEC = """
name: shop
storage: file://{directory}/storage
libraries:
  - glob:
      include: tables.py
"""

TABLES = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

HUB = {hub!r}
spark = SparkSession.active()

@dp.materialized_view
def orders():
    return spark.read.format("tailrace").load(HUB + "/orders").select("key", "value")

@dp.table
def live():
    reader = spark.readStream.format("tailrace").option("startingOffsets", "earliest")
    return reader.load(HUB + "/orders").select("key", "value")
"""


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A hub with fifty orders."""
    with tailrace.open(tmp_path / "hub") as made:
        made.create_topic("orders", bytes, partitions=2).push_many(numbers(50))
    return tmp_path / "hub"


def run(command: Sequence[str], directory: Path) -> str:
    """The output of a program, whose Spark takes any free port."""
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | own | {"PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_topics_are_read_and_written_over_spark_connect(hub: Path, tmp_path: Path) -> None:
    assert run([sys.executable, "-c", PROGRAM, str(hub)], tmp_path).split() == [
        "50", "50", "51", "51",
    ]  # fmt: skip


def test_a_declarative_pipeline_reads_topics(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(directory=tmp_path))
    (tmp_path / "tables.py").write_text(TABLES.format(hub=str(hub)))
    run([str(BIN / "spark-pipelines"), "run"], tmp_path)
    tables = tmp_path / "spark-warehouse"
    assert pq.read_table(tables / "orders").num_rows == 50
    assert pq.read_table(tables / "live").num_rows == 50
