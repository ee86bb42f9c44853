"""Starting Spark during the first act, so that the pipeline does not wait for Java."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.demo.stage import Display
from tailrace.errors import Error
from tailrace.pipeline.definition.settings import Engine
from tailrace.pipeline.engine.driver import spark_directory
from tailrace.spark.session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_in_background(
    directory: Path, display: Display, master: str | None
) -> Iterator[Callable[[], Engine]]:
    """Start Spark in a thread, and stop it at the end. Its log is in the hub's directory.

    Yield a function that waits for Spark and returns the engine for pipelines. Without Spark it
    returns the direct engine and tells the display why, unless a `master` was named: then it raises
    the error.
    """
    started: Future[SparkSession] = Future()
    log_file = spark_directory(directory.absolute()) / "spark.log"
    arguments = (started, log_file, master)
    threading.Thread(target=_start, args=arguments, name="spark", daemon=True).start()
    try:
        yield lambda: _engine(started, display, master)
    finally:
        if started.done() and started.exception() is None:
            started.result().stop()


def _start(started: Future[SparkSession], log_file: Path, master: str | None) -> None:
    try:
        started.set_result(start("demo", master=master, log_file=log_file))
    except BaseException as error:
        started.set_exception(error)


def _engine(started: Future[SparkSession], display: Display, master: str | None) -> Engine:
    try:
        started.result()
    except Error as missing:
        if master is not None:
            raise
        display.say(f"\nThe pipeline runs on the direct engine instead of Spark: {missing}")
        return Engine.DIRECT
    return Engine.SPARK
