"""Signals to the process group of a pipeline on Spark, as a terminal and process managers send."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.pipelines.lake_file import LakeFile
from tests.support.processes import await_death
from tests.support.servers.spark_cluster import children_of
from tests.support.waiting import until

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.part("spark"),
    pytest.mark.timeout(300),
]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (signal.SIGTERM, 0),
        pytest.param(signal.SIGINT, 0, marks=pytest.mark.soak),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.soak),
    ],
)
def test_a_signal_to_the_process_group_stops_an_idle_pipeline_and_its_java(
    tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    lake = LakeFile(tmp_path)
    run = lake.start("--master", "local[1]")
    try:
        until(lambda: b'"rows":2,' in lake.output.read_bytes(), "no rows", within_s=200)
        (java,) = (pid for pid in children_of(run.pid) if name_of(pid) == "java")
        os.killpg(run.pid, sent)
        assert run.wait(60) == status, lake.output.read_text()
        await_death(java)
    finally:
        run.kill()


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
