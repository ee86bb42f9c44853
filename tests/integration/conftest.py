"""One Spark session for all tests of a process, and test benches on both engines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import tailrace
from tailrace.pipeline.engine.driver import DriverOf, direct_driver
from tailrace.pipeline.engine.run_session import RunSession
from tailrace.pipeline.engine.spark_driver import spark_drivers
from tailrace.spark.frames.native import SWITCH, has_native_reader
from tailrace.spark.session import start
from tests.support.pipelines.recording_writer import RecordingWriter
from tests.support.pipelines.writer_bench import WriterBench
from tests.support.servers.shared import Unavailable
from tests.support.servers.spark_cluster import SparkCluster, running_cluster

# Writers of tests are sent to Spark's workers by name, and a worker may begin in any directory.
_ROOT = str(Path(__file__).parents[2])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), _ROOT)))


def _end_java_of_other_tests() -> None:
    """End the Java process of this process, which may lack the options that Tailrace gives it."""
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # Java ends with it.
        gateway.proc.wait(timeout=60)
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores that tries a task four times. Tests that use it are marked
    `xdist_group("spark")`."""
    _end_java_of_other_tests()
    directory = tmp_path_factory.mktemp("spark")
    session = start(
        "tailrace-tests",
        master="local[2,4]",
        log_file=directory / "spark.log",
        options={
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(directory / "tables"),
        },
    )
    yield session
    session.stop()


@pytest.fixture(params=["python", "native"])
def reader(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """The reader of topics: Python and the native reader in turn."""
    spark.conf.set(SWITCH, str(request.param == "native").lower())
    assert has_native_reader(spark) is (request.param == "native")
    yield request.param
    spark.conf.unset(SWITCH)


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A standalone cluster of two workers with one core each. Tests that use it are marked
    `xdist_group("spark-cluster")` and run their drivers in processes of their own."""
    try:
        with running_cluster() as cluster:
            yield cluster
    except Unavailable as reason:
        pytest.skip(f"no Spark cluster: {reason}")


@pytest.fixture(params=["direct", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))])
def driver_of(request: pytest.FixtureRequest) -> DriverOf:
    """Drivers of each engine in turn."""
    if request.param == "direct":
        return direct_driver
    return spark_drivers(RunSession(lambda: request.getfixturevalue("spark")))


@pytest.fixture
def bench(driver_of: DriverOf, tmp_path: Path) -> Iterator[WriterBench]:
    """A test bench on each engine in turn, with a recording writer in the directory `sink`."""
    (tmp_path / "sink").mkdir()
    with tailrace.open(tmp_path / "hub") as hub:
        yield WriterBench(hub, driver_of, RecordingWriter(str(tmp_path / "sink")))
