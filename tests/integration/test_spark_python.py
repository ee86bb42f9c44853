"""A pipeline on Spark in a virtual environment that is not activated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.part("pipelines")]

ROOT = Path(__file__).parents[2]

PROGRAM = """
import tailrace
from tailrace import Pipeline, functions as fn, readers, writers

lake = Pipeline("lake", readers.file("in/*.jsonl"))
lake.write("files", writers.parquet("out"), functions=[fn.python(lambda row: row | {"n": 1})])
with tailrace.open("hub") as hub:
    print(lake.run(hub, once=True, master="local[1]").writer("files").rows)
"""


def test_workers_run_the_python_of_a_virtual_environment_that_is_not_activated(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    bare = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT / 'src'}",
        "PYSPARK_DRIVER_PYTHON": "jupyter",  # As users set it to start notebooks.
    }
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=bare | kept,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
