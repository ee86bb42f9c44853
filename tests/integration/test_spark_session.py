"""The Spark session of pipelines: a new one, an existing one, and none without its master."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest

from tests.support.pipelines.lake_file import LakeFile

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.part("spark"),
    pytest.mark.timeout(300),
]

REPORTED_S = 15.0
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

ENDED = """
import sys
import tailrace
from pyspark import SparkContext
from pyspark.sql import SparkSession

who, how = sys.argv[1:]
if who == "mine":
    off = {"spark.ui.enabled": "false"}
    SparkSession.builder.master("local[1]").config(map=off).getOrCreate()
lake = tailrace.Pipeline.from_file("lake.toml")
ended = []


def follow(progress):
    rows = sum(writer.rows for writer in progress.writers)
    if rows == 2 and not ended:
        ended.append(SparkSession.active())
        if how == "killed":
            SparkContext._gateway.proc.kill()
        else:
            ended[0].sparkContext._jsc.sc().stop()  # As Spark does if a master removes it.
        with open("in/orders.jsonl", "a") as more:
            more.write('{"id": 3}\\n')
    elif rows == 3 or any(writer.state == "failed" for writer in progress.writers):
        lake.stop()


with tailrace.open("hub") as hub:
    try:
        print(lake.run(hub, progress=follow).writer("files").rows)
    except tailrace.PipelineFailed as failed:
        print(failed)
"""

MINE = """
import sys
import tailrace
from pyspark.sql import SparkSession

settings = {"spark.ui.enabled": "false", "spark.pyspark.python": sys.argv[1]}
SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
with tailrace.open("hub") as hub:
    try:
        tailrace.Pipeline.from_file("lake.toml").run(hub, once=True, wait="1s")
    except tailrace.PipelineFailed as failed:
        print(failed)
"""

DEFECT = """
import threading
import tailrace
from tailrace.pipeline.engine.spark import SparkEngine
from tailrace.pipeline.writing.writer_run import WriterRun

writing = threading.Event()
write, overtaken = SparkEngine._write_there, WriterRun.overtaken


def write_there(self, job, stopping):
    if threading.current_thread().name != "lake/files":
        writing.set()  # A batch of the query.
    return write(self, job, stopping)


def fails_beside_a_batch(self):
    if writing.is_set():
        raise RuntimeError("the driver of the writer has a defect")
    return overtaken(self)


def follow(progress):
    states = [writer.state for writer in progress.writers]
    if "failed" in states:
        lake.stop()
    elif not writing.is_set():
        with open("in/orders.jsonl", "a") as more:
            more.write('{"id": 3}\\n')


SparkEngine._write_there, WriterRun.overtaken = write_there, fails_beside_a_batch
lake = tailrace.Pipeline.from_file("lake.toml")
with tailrace.open("hub") as hub:
    try:
        lake.run(hub, progress=follow, master="local[1]")
    except tailrace.PipelineFailed as failed:
        print(failed)
"""


@pytest.fixture
def lake(tmp_path: Path) -> LakeFile:
    return LakeFile(tmp_path)


def test_a_session_leaves_nothing_to_the_next_one_and_an_existing_one_is_used_as_it_is(
    lake: LakeFile,
) -> None:
    done = lake.run(sys.executable, "-c", PROGRAM)
    assert done.stdout.splitlines() == ["local[1] 7", "local[*] unset", "2", "local[2] 3"]
    assert "used as it is; ignored: spark.master=local[1,4]" in done.stderr


@pytest.mark.parametrize("named_in", ["lake.toml", "spark-defaults.conf", "a session"])
def test_the_workers_of_a_pipeline_run_the_python_that_spark_is_set_to(
    tmp_path: Path, named_in: str
) -> None:
    chosen = tmp_path / "chosen-python"
    chosen.write_text(f'#!/bin/sh\necho run >> {tmp_path}/ran\nexec {sys.executable} "$@"\n')
    chosen.chmod(0o755)
    setting = f'[pipeline.spark]\n"spark.pyspark.python" = "{chosen}"\n'
    lake = LakeFile(tmp_path, spark=setting if named_in == "lake.toml" else "")
    own = f"spark.pyspark.python {chosen}\n" if named_in == "spark-defaults.conf" else ""
    (tmp_path / "spark-defaults.conf").write_text(own)
    run = ["-m", "tailrace", "--hub", "hub", "pipeline", "run", "lake.toml", "--once"]
    command = ["-c", MINE, str(chosen)] if named_in == "a session" else run
    lake.run(sys.executable, *command, SPARK_CONF_DIR=str(tmp_path), PYSPARK_PYTHON=sys.executable)
    asked = 0 if named_in == "a session" else 1  # A session of the user is not checked.
    assert len((tmp_path / "ran").read_text().splitlines()) > asked


def test_a_python_that_does_not_start_is_named_with_its_host_and_the_remedy(
    lake: LakeFile,
) -> None:
    missing = str(lake.directory / "no-python")
    done = lake.run(sys.executable, "-c", MINE, missing, PYSPARK_PYTHON=sys.executable)
    reason = f"cannot run the Python {missing}: No such file or directory · install it there"
    assert reason in done.stdout, done.stdout + done.stderr
    assert "waits for executors" in done.stderr
    assert "the executor on host " in lake.tailrace("explain", "lake/files").stdout


def test_an_error_beside_a_batch_of_the_query_is_not_hidden_by_the_end_of_the_batch(
    lake: LakeFile,
) -> None:
    printed = lake.run(sys.executable, "-c", DEFECT).stdout
    assert "the driver of the writer has a defect" in printed, printed


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_session_that_ends_by_itself_is_replaced_and_the_writers_continue(
    lake: LakeFile, how: str
) -> None:
    """A cluster stops a session; lack of memory kills Java."""
    done = lake.run(sys.executable, "-c", ENDED, "ours", how)
    assert done.stdout == "3\n"
    assert "Exception occurred during processing of request" not in done.stderr
    status = lake.tailrace("pipeline", "status", "-o", "json").stdout
    assert '"rows":3' in status.replace(" ", "")


def test_a_session_of_the_program_that_ends_is_not_replaced_and_the_writers_fail(
    lake: LakeFile,
) -> None:
    program = (sys.executable, "-c", ENDED, "mine", "stopped")
    printed = lake.run(*program, PYSPARK_PYTHON=sys.executable).stdout
    assert "the Spark session of this process has ended · start another" in printed


@pytest.mark.parametrize("named_in", ["--master", "spark-defaults.conf"])
@pytest.mark.parametrize("listening", [False, True])
def test_a_master_that_cannot_be_reached_is_reported_in_15_seconds_and_explained(
    lake: LakeFile, named_in: str, listening: bool
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        if listening:
            bound.listen()  # And answers nothing, like a master that was stopped.
        master = f"spark://127.0.0.1:{bound.getsockname()[1]}"
        (lake.directory / "spark-defaults.conf").write_text(f"spark.master {master}\n")
        options = ["--master", master] if named_in == "--master" else []
        began = time.monotonic()
        done = lake.tailrace(
            *("pipeline", "run", "lake.toml", "--once", *options),
            status=1,
            SPARK_CONF_DIR=str(lake.directory),
        )
        assert time.monotonic() - began < REPORTED_S
    reason = f"cannot reach the Spark master {master}: {master.removeprefix('spark://')} "
    reason += "accepts connections, but does not answer" if listening else "refuses the connection"
    assert done.stderr.splitlines()[-1].startswith(f"BackendUnavailable: {reason}")
    assert reason in lake.tailrace("status", status=4).stdout
    assert reason in lake.tailrace("pipeline", "status", "lake").stdout
    assert reason in lake.tailrace("explain", "lake").stdout
    assert reason in lake.tailrace("explain", "lake/files").stdout


def test_a_setting_that_spark_refuses_ends_the_run_with_one_sentence(lake: LakeFile) -> None:
    options = ["--master", "local[1]", "--conf", "spark.cores.max=0"]
    done = lake.tailrace("pipeline", "run", "lake.toml", "--once", *options, status=2)
    reason = "Spark does not start: Total executor cores must be a positive number"
    assert done.stderr.splitlines()[-1] == f"ConfigError: {reason}"
    assert "SparkSubmit" not in done.stderr


def test_a_pipeline_whose_master_could_not_be_reached_is_well_after_its_next_run(
    lake: LakeFile,
) -> None:
    run = ["pipeline", "run", "lake.toml", "--once"]
    lake.tailrace(*run, "--master", "spark://127.0.0.1:1", status=1)
    lake.tailrace(*run, "--master", "local[1]", "--conf", "spark.ui.enabled=false")
    lake.tailrace("status")
    assert "did not start" not in lake.tailrace("explain", "lake").stdout
