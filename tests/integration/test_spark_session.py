"""The Spark session of pipelines: a new one, an existing one, and none without its master."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.part("spark"),
    pytest.mark.timeout(300),
]

REPORTED_S = 50.0  # On a busy machine; Spark alone tries for a minute.
FILE = """
[pipeline]
name = "lake"
[reader]
type = "file"
path = "in/*.jsonl"
[writer.files]
type = "parquet"
path = "out/"
"""
PROGRAM = """
import logging
import tailrace
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tailrace.spark.session import start, stop_started

logging.basicConfig(level="WARNING")
off = {"spark.ui.enabled": "false"}
first = start("first", master="local[1]", options=off | {"spark.acme.level": "7"})
print(first.sparkContext.master, first.conf.get("spark.acme.level"))
stop_started()
assert SparkContext._active_spark_context is None
second = start("second", options=off)
print(second.sparkContext.master, second.conf.get("spark.acme.level", "unset"))
stop_started()

mine = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
lake = tailrace.Pipeline.from_file("lake.toml")
with tailrace.open("hub") as hub:
    print(lake.run(hub, once=True, master="local[1]").writer("files").rows)
stop_started()
print(mine.sparkContext.master, mine.range(3).count())
"""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "lake.toml").write_text(FILE)
    return tmp_path


def python(directory: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


def test_a_session_leaves_nothing_to_the_next_one_and_an_existing_one_is_used_as_it_is(
    lake: Path,
) -> None:
    done = python(lake, "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["local[1] 7", "local[*] unset", "2", "local[2] 3"]
    assert "used as it is; ignored: spark.master=local[1,4]" in done.stderr


@pytest.mark.parametrize("named_in", ["--master", "spark-defaults.conf"])
def test_a_master_that_cannot_be_reached_ends_a_run_within_seconds(
    lake: Path, named_in: str
) -> None:
    (lake / "spark-defaults.conf").write_text("spark.master spark://127.0.0.1:1\n")
    command = ["-m", "tailrace", "--hub", "hub", "pipeline", "run", "lake.toml", "--once"]
    if named_in == "--master":
        command += ["--master", "spark://127.0.0.1:1"]
    began = time.monotonic()
    done = python(lake, *command, SPARK_CONF_DIR=str(lake))
    assert time.monotonic() - began < REPORTED_S
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("BackendUnavailable: cannot reach the Spark master spark://127.0.0.1:1")
