"""One Spark session for all tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.spark.session import start

# Writers of tests are sent to Spark's workers by name, and a worker may begin in any directory.
_ROOT = str(Path(__file__).parents[2])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), _ROOT)))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores that tries a task four times. Tests that use it are marked
    `xdist_group("spark")`."""
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()  # Of another test, with other settings.
    session = start(
        "tailrace-tests",
        master="local[2,4]",
        log_file=tmp_path_factory.mktemp("spark") / "spark.log",
        options={"spark.sql.shuffle.partitions": "2"},
    )
    yield session
    session.stop()
