"""Spark, started while the first act is played, so that the pipeline does not wait for Java."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future
from pathlib import Path

from tailrace.errors import Error
from tailrace.pipeline.definition import Engine
from tailrace.pipeline.driving import spark_directory
from tailrace.spark.session import start


def begin_spark(directory: Path) -> Future[object]:
    """Start Spark in a thread; its log lies beside the hub of the directory."""
    begun: Future[object] = Future()
    log_file = spark_directory(str(directory)) / "spark.log"

    def begin() -> None:
        try:
            begun.set_result(start("demo", log_file=log_file))
        except BaseException as error:
            begun.set_exception(error)

    threading.Thread(target=begin, name="spark", daemon=True).start()
    return begun


def engine_of(begun: Future[object]) -> Engine:
    """The engine to run pipelines by: that of Spark once it is there, or else the direct one."""
    try:
        begun.result()
    except Error as missing:
        print(f"without Spark, by the direct engine: {missing}", file=sys.stderr)
        return Engine.DIRECT
    return Engine.SPARK
