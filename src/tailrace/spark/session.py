"""Starting Spark quietly, and as fast as can be had."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from tailrace.errors import BackendUnavailable, ConfigError
from tailrace.spark.archive import archive_path, using
from tailrace.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN_BYTES: Final = 2000
_HERE: Final = re.compile(r"local(-cluster)?(\[.*\])?|spark://(127\.0\.0\.1|localhost):[0-9]+")
_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # How long a query without new data waits before it looks again. With Spark's own 10 ms a few
    # idle queries keep a processor busy.
    "spark.sql.streaming.pollingDelay": "50ms",
    # What Spark remembers of the past for its web pages, so that the driver's memory stays flat.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "50",
}
_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_SOCKETS_PATH_MAX: Final = 61
"""Spark takes no directory of a longer name for its sockets: with theirs, it is all the kernel
takes."""


def start(
    app: str,
    *,
    master: str = "local[*]",
    log_file: Path | None = None,
    verbose: bool = False,
    options: Mapping[str, str] = {},
) -> SparkSession:
    """A Spark session; where this process has one, that one, with those `options` that can be set.

    What Java and Spark have to say is appended to `log_file`; to the terminal it goes only if
    `verbose`. Workers on this host run the Python that runs here. `ConfigError` says what to
    install where Spark or Java is missing.
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(
            f"Spark cannot be used: {error}", "install it: pip install 'tailrace[spark]'"
        ) from error
    if SparkContext._active_spark_context is None:
        here = _HERE.fullmatch(master) is not None
        settings = {"spark.app.name": app, "spark.master": master} | _OPTIONS
        settings |= ({**_LOOPBACK, **_sockets()} if here else {}) | dict(options)
        if here or "PYSPARK_PYTHON" not in os.environ:
            os.environ["PYSPARK_PYTHON"] = sys.executable
        if SparkContext._gateway is None:
            _launch(settings, log_file, verbose)
        SparkContext(conf=SparkConf().setAll(list(settings.items())))
    builder = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@cache
def _sockets() -> Mapping[str, str]:
    """The settings with which Java and Python pass rows through Unix sockets, which takes less time
    of the kernel than TCP; none where those cannot be had.

    Spark lets in whoever can open such a socket, so they lie where only this user can.
    """
    if not hasattr(socket, "AF_UNIX"):
        return {}
    directory = tempfile.mkdtemp(prefix="tailrace-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    if len(os.fsencode(directory)) > _SOCKETS_PATH_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


def _launch(settings: Mapping[str, str], log_file: Path | None, verbose: bool) -> None:
    """Start the Java that every session of this process runs in."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    with_archive = {_JAVA_OPTIONS: using(java, archive_path(java))}
    conf = SparkConf().setAll(list((with_archive | dict(settings)).items()))
    with _output(log_file, verbose) as output:
        begin = output.seek(0, os.SEEK_END) if output.seekable() else 0
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, {"stdout": output, "stderr": output}
            )
        except PySparkRuntimeError as error:
            raise BackendUnavailable("Java did not start", _said(output, begin)) from error
    SparkContext._ensure_initialized(gateway=gateway)


def _output(log_file: Path | None, verbose: bool) -> AbstractContextManager[IO[Any]]:
    """Where Java's output goes. A file without a name keeps what explains a failed start."""
    if verbose:
        return nullcontext(sys.__stderr__ or sys.stderr)
    if log_file is None:
        return tempfile.TemporaryFile()
    log_file.parent.mkdir(parents=True, exist_ok=True)
    return log_file.open("ab+")


def _said(output: IO[Any], begin: int) -> str:
    """The end of what was written since, if that can be read again."""
    if not output.readable():
        return "its reason is above"
    output.seek(max(begin, output.seek(0, os.SEEK_END) - _SHOWN_BYTES))
    said: bytes = output.read()
    return said.decode(errors="replace").strip()
