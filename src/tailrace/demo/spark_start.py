"""Spark, started while the first act is played, so that the pipeline does not wait for Java."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.errors import Error
from tailrace.pipeline.definition import Engine
from tailrace.pipeline.driving import spark_directory
from tailrace.spark.session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_in_background(directory: Path) -> Iterator[Callable[[], Engine]]:
    """Start Spark in a thread, and stop it at the end; its log lies in the hub of the directory.

    Gives what waits for it and names the engine to run pipelines by: the direct one, with a word
    why, where there is no Spark.
    """
    begun: Future[SparkSession] = Future()
    log_file = spark_directory(str(directory)) / "spark.log"
    threading.Thread(target=_begin, args=(begun, log_file), name="spark", daemon=True).start()
    try:
        yield lambda: _engine(begun)
    finally:
        if begun.done() and begun.exception() is None:
            begun.result().stop()


def _begin(begun: Future[SparkSession], log_file: Path) -> None:
    try:
        begun.set_result(start("demo", log_file=log_file))
    except BaseException as error:
        begun.set_exception(error)


def _engine(begun: Future[SparkSession]) -> Engine:
    try:
        begun.result()
    except Error as missing:
        print(f"\nThe direct engine takes the place of Spark: {missing}", file=sys.stderr)
        return Engine.DIRECT
    return Engine.SPARK
