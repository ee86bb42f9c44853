"""Making the data source known to a session that does not find it by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tailrace
from tests.integration.topics_on_spark import numbers

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.part("pipelines")]

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").getOrCreate()
source = spark.read.format("tailrace")
try:
    source.load(sys.argv[1])
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" in str(error))

import tailrace.spark

print(tailrace.__file__.count(".zip"))
tailrace.spark.register(spark)
topic = source.load(sys.argv[1])
print(topic.count(), topic.where("partition = 0").rdd.getNumPartitions())
"""

READS = """
import os, sys, threading
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import tailrace.spark

hub = sys.argv[1]
spark = SparkSession.builder.master("local[1]").getOrCreate()


def show():
    topic = spark.read.format("tailrace").load(hub + "/orders")
    frames = topic, tailrace.spark.read(spark, "orders", hub=hub)
    plans = [frame._jdf.queryExecution().executedPlan().toString() for frame in frames]
    print([frame.count() for frame in frames], ["(native)" in plan for plan in plans])


tailrace.spark.register(spark)
tailrace.spark.register(spark)
show()
other = threading.Thread(target=show)
other.start()
other.join()
spark.conf.set("spark.tailrace.native", "false")
show()
"""

READS_DAMAGE = """
import sys
from pyspark.sql import SparkSession
import tailrace.spark

hub = sys.argv[1]
spark = SparkSession.builder.master("local[1]").getOrCreate()
tailrace.spark.register(spark)
topic = spark.read.format("tailrace").load(hub + "/orders")
for frame in topic, tailrace.spark.read(spark, "orders", hub=hub):
    try:
        frame.collect()
    except Exception as error:
        print(str(error).partition(" in /")[0])
"""


@pytest.mark.timeout(300)
def test_the_native_reader_of_a_registered_session_names_damage(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub") as hub:
        hub.create_topic("orders", bytes, partitions=1).push_many(numbers(50))
    [log] = (tmp_path / "hub").rglob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0x10
    log.write_bytes(data)
    command = [sys.executable, "-c", READS_DAMAGE, str(tmp_path / "hub")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = "[USER_RAISED_EXCEPTION] orders/0.0@0 to @49 is damaged"
    assert done.stdout.splitlines() == [said, said], done.stderr


@pytest.mark.timeout(300)
def test_registration_adds_the_native_reader_to_a_session_for_all_its_threads(
    tmp_path: Path,
) -> None:
    with tailrace.open(tmp_path / "hub") as hub:
        hub.create_topic("orders", bytes, partitions=2).push_many(numbers(50))
    command = [sys.executable, "-c", READS, str(tmp_path / "hub")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    native, python = "[50, 50] [True, True]", "[50, 50] [False, False]"
    assert done.stdout.splitlines() == [native, native, python], done.stderr


@pytest.mark.timeout(300)
def test_registration_helps_without_activation_in_a_notebook_and_with_py_files(
    tmp_path: Path,
) -> None:
    """The Python of the `PATH` lacks Spark, the notebook is none, and no Python has Tailrace."""
    with tailrace.open(tmp_path / "hub") as hub:
        hub.create_topic("orders", bytes, partitions=2).push_many(numbers(50))
    package = shutil.make_archive(str(tmp_path / "package"), "zip", ROOT / "src", "tailrace")
    environment = {
        "PATH": "/usr/bin:/bin",
        # Without the .pth file by which the environment of the tests has Tailrace.
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PYSPARK_DRIVER_PYTHON": "jupyter",
        "PYSPARK_SUBMIT_ARGS": f"--py-files {package} pyspark-shell",
    }
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    done = subprocess.run(
        [str(python), "-c", PROGRAM, str(tmp_path / "hub" / "orders")],
        cwd=tmp_path,
        env=environment | kept,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.stdout.splitlines() == ["True", "1", "50 1"], done.stderr
