"""The Python that Spark's workers run, and what is missing to run Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.spark import installed, java
from tailrace.spark.installed import missing_for_spark
from tailrace.spark.tracebacks import hide_traceback
from tailrace.spark.worker_python import (
    SETTING,
    VARIABLE,
    WorkerPython,
    check_python,
    choose_python,
    driver_python,
)


def test_workers_run_the_python_of_this_process_unless_the_user_chose_another() -> None:
    mine = choose_python({}, {"PATH": "/usr/bin:/bin"})
    check_python(mine, {})
    assert mine.program == sys.executable
    on_hosts = {VARIABLE: "/opt/python/bin/python3"}
    assert choose_python({}, on_hosts) == ("/opt/python/bin/python3", VARIABLE)


def test_the_setting_of_spark_is_stronger_than_the_variable() -> None:
    settings = {SETTING: "/opt/python/bin/python3"}
    assert choose_python(settings, {VARIABLE: "python3"}) == ("/opt/python/bin/python3", SETTING)


@pytest.mark.parametrize("before", [{}, {"PYSPARK_DRIVER_PYTHON": "jupyter"}])
def test_java_on_the_drivers_host_runs_the_python_of_this_process(before: dict[str, str]) -> None:
    environment = dict(before)
    with driver_python(environment):
        assert environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environment == before


def a_python(directory: Path, script: str) -> str:
    program = directory / "python3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_a_chosen_python_that_has_tailrace_is_used(tmp_path: Path) -> None:
    chosen = a_python(tmp_path, f'exec "{sys.executable}" "$@"')
    check_python(WorkerPython(chosen, VARIABLE), os.environ)


@pytest.mark.parametrize("named_by", [VARIABLE, SETTING])
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'ModuleNotFoundError: pyarrow' >&2; exit 1", "cannot import tailrace: .*pyarrow"),
        ("echo 2.7", r"is Python 2[.]7, this process runs 3"),
    ],
)
def test_a_chosen_python_that_cannot_run_workers_is_named(
    tmp_path: Path, script: str, reason: str, named_by: str
) -> None:
    chosen = a_python(tmp_path, script)
    with pytest.raises(ConfigError, match=f"{named_by} is '{chosen}', which {reason}") as refused:
        check_python(WorkerPython(chosen, named_by), {})
    assert f"unset {named_by}, or set it to {sys.executable}" in str(refused.value)


def test_a_chosen_python_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"which does not run: .*No such file"):
        check_python(WorkerPython(str(tmp_path / "python3"), VARIABLE), {})


def test_a_worker_that_lacks_a_package_names_its_python_and_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    with (
        pytest.raises(ConfigError, match=f"Spark runs {sys.executable}, .*PYSPARK_PYTHON"),
        hide_traceback(),
    ):
        raise ModuleNotFoundError("No module named 'pyarrow'")


def test_what_spark_lacks_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    without_java = missing_for_spark({"PATH": ""})
    assert without_java is not None
    assert without_java.what == "Java 17 or newer is not installed"
    assert "tailrace[java]" in without_java.install
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    without_spark = missing_for_spark()
    assert without_spark is not None
    assert without_spark.install == "pip install 'tailrace[spark]'"
