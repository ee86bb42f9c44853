"""What the text of a failed job says about the Python of an executor."""

from __future__ import annotations

import pytest

from tailrace.spark.cluster.python_start import PythonFailure, python_failure

ABORTED = (
    "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted "
    "due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 "
    "in stage 0.0 (TID 6) (10.0.0.5 executor 1): "
)
STACK = "\n\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)"
NO_DAEMON = "SparkException: EOFException occurred while reading the port number"
TRACEBACK = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (
            'java.io.IOException: Cannot run program "/opt/python3": error=2, No such file or '
            f"directory{STACK}",
            "No such file or directory",
        ),
        (
            'java.io.IOException: Cannot run program "py" (in directory "."): Exec failed, '
            f"error: 13 (Permission denied){STACK}",
            "Exec failed, error: 13 (Permission denied)",
        ),
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  warning\n  python: No "
            f"module named pyspark\nPYTHONPATH was:\n  /lib\norg.apache.spark.{NO_DAEMON}{STACK}",
            "python: No module named pyspark",
        ),
        (
            f"{TRACEBACK}  File ...\nModuleNotFoundError: No module named 'tailrace'\n{STACK}",
            "ModuleNotFoundError: No module named 'tailrace'",
        ),
        (
            f"{TRACEBACK}pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
            f"worker has different version: 3.9 than that in driver: 3.11{STACK}",
            "Python in worker has different version: 3.9 than that in driver: 3.11",
        ),
    ],
)
def test_a_python_that_cannot_run_tasks_is_reported_with_its_host(cause: str, reason: str) -> None:
    assert python_failure(ABORTED + cause) == PythonFailure("10.0.0.5", reason)


@pytest.mark.parametrize(
    "text",
    [
        "the sink cannot be reached",
        f"{ABORTED}java.io.IOException: No space left on device{STACK}",
        f"{ABORTED}{TRACEBACK}ModuleNotFoundError: No module named 'acme'{STACK}",
    ],
)
def test_other_failures_of_a_job_are_not_taken_for_a_python_that_does_not_start(text: str) -> None:
    assert python_failure(text) is None
