"""Starting Spark, quietly and fast."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from tailrace.errors import BackendUnavailable, ConfigError
from tailrace.spark.archive import archive_path, use_archive_options
from tailrace.spark.cluster.application import has_ended
from tailrace.spark.cluster.defaults import default_setting
from tailrace.spark.cluster.master import ANSWER_S, check_address, check_master
from tailrace.spark.cluster.settings import (
    ARROW_OPTIONS,
    MASTER,
    ignored_settings,
    is_on_this_host,
    session_settings,
    with_tries,
)
from tailrace.spark.frames.native import JARS, prepare_rows, with_native_jar
from tailrace.spark.java import find_java
from tailrace.spark.worker_python import (
    SETTING,
    VARIABLE,
    check_python,
    choose_python,
    driver_python,
)

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_SHOWN_BYTES: Final = 2000
_REFUSED: Final = re.compile(
    r'^Exception in thread "main" org\.apache\.spark\.SparkException: (.+)$', re.MULTILINE
)
"""How spark-submit reports a setting that it refuses, before Java runs for us."""

_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_SHOW_PROGRESS: Final = "spark.ui.showConsoleProgress"
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""The environment variable by which ``spark-submit`` names the Java process that it has started."""

_SOCKETS_PATH_MAX: Final = 61
"""The longest path that Spark takes for the directory of its sockets; the kernel limits the length
of a socket's path."""

_passed: Final[set[str]] = set()
"""The settings that Java was started with by this module. They are those of one session."""

_started: Final[list[SparkContext]] = []
"""The context that this module started last, if any."""


def start(
    app: str,
    *,
    master: str | None = None,
    log_file: Path | None = None,
    verbose: bool = False,
    options: Mapping[str, str] = {},
    task_tries: int = 1,
) -> SparkSession:
    """Return a Spark session.

    If this process has a session that runs, return that one as it is. A new one has these
    `options`, then what Spark is configured with (``spark-submit``, ``spark-defaults.conf``), then
    our defaults. The same holds for the master, which is ``local[*]`` if nobody names one. In local
    mode a task is tried `task_tries` times; clusters have a setting for that.

    The output of Java and Spark is appended to `log_file`; with `verbose` it goes to the terminal.
    Workers run the Python of this process, also in a virtual environment that is not activated,
    unless the setting ``spark.pyspark.python``, of an existing session too, or the variable
    PYSPARK_PYTHON names another one. `ConfigError` says what to install if Spark or Java is
    missing, or if that other Python lacks Tailrace. `BackendUnavailable` if the master cannot be
    reached.
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(
            f"cannot import Spark: {error}", "install it: pip install 'tailrace[spark]'"
        ) from error
    given = dict(options) if master is None else {**options, MASTER: master}
    active = _running_context()
    if active is not None:
        if MASTER in given:
            given[MASTER] = with_tries(given[MASTER], task_tries)
        _warn_of_ignored(active, given)
        if program := active.getConf().get(SETTING):
            active.pythonExec = program
    else:
        os.environ.setdefault(VARIABLE, sys.executable)
        began = time.monotonic()
        if SparkContext._gateway is None:
            # Before Java, which takes seconds to start.
            check_address(given.get(MASTER) or default_setting(MASTER, os.environ))
            jars = {JARS: default_setting(JARS, os.environ)}
            _launch(with_native_jar(jars | given), log_file, verbose)
        settings = session_settings(app, _configured(), given, task_tries, _sockets())
        settings = with_native_jar(settings)
        python = choose_python(settings, os.environ)
        if is_on_this_host(settings[MASTER]):
            check_python(python, os.environ)
        check_address(settings[MASTER])
        # On a busy host everything takes as long as Java did.
        check_master(settings[MASTER], max(ANSWER_S, time.monotonic() - began))
        context = _context(SparkConf().setAll(list(settings.items())))
        context.pythonExec = python.program
        _log_lost_connections(context)
        _started[:] = [context]
    session = SparkSession.builder.getOrCreate()
    if active is None:
        from tailrace.spark.reading.registration import plan_each_query

        plan_each_query(session)
        prepare_rows(session)
    return session


def _running_context() -> SparkContext | None:
    """Return the context of this process; None if it has none, or it has ended."""
    from pyspark import SparkContext

    active = SparkContext._active_spark_context
    if active is None or not has_ended(active):
        return active
    for _ in range(2):  # The first call raises if Java has ended, and the second one completes it.
        with suppress(Exception):
            active.stop()
    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None and java.poll() is not None:
        SparkContext._gateway = SparkContext._jvm = None
    return None


def _context(conf: SparkConf) -> SparkContext:
    from pyspark import SparkContext

    try:
        return SparkContext(conf=conf)
    except Exception as error:
        cause = getattr(error, "java_exception", None)
        if cause is None:
            raise
        reason = str(cause.getMessage() or cause.getClass().getName()).partition("\n")[0]
        raise ConfigError(f"Spark does not start on {conf.get(MASTER)}", reason) from error


def _log_lost_connections(context: SparkContext) -> None:
    """Log it if Java ends without closing a connection; Python's server would print a traceback."""

    def log(_request: Any, _address: Any) -> None:
        _log.debug("Java ended without closing its connection", exc_info=True)

    server: Any = context._accumulatorServer
    server.handle_error = log


def is_started(context: SparkContext) -> bool:
    """True if `start` started this session, and no later one."""
    return context in _started


def stop_started() -> None:
    """Stop the session of this process, if `start` started it."""
    from pyspark import SparkContext

    active = SparkContext._active_spark_context
    if active is not None and active in _started:
        active.stop()
    _started.clear()


def _warn_of_ignored(active: SparkContext, given: Mapping[str, str]) -> None:
    ignored = ignored_settings(given, dict(active.getConf().getAll()))
    if ignored:
        _log.warning(
            "this process has a Spark session, which is used as it is; ignored: %s",
            ", ".join(ignored),
        )


def _configured() -> dict[str, str]:
    """Return what Spark is configured with, without the settings of our first session."""
    from pyspark import SparkConf, SparkContext

    jvm: Any = SparkContext._jvm
    if _passed:
        for name in _passed:
            jvm.java.lang.System.clearProperty(name)
        jvm.org.apache.spark.util.Utils.loadDefaultSparkProperties(SparkConf()._jconf, None)
    return dict(SparkConf().getAll())


@cache
def _sockets() -> Mapping[str, str]:
    """Return the settings with which Java and Python exchange rows over Unix sockets, if possible.

    Unix sockets cost less kernel time than TCP. Spark accepts every process that can open such a
    socket, so they are in a directory that only this user can enter.
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


def _launch(given: Mapping[str, str], log_file: Path | None, verbose: bool) -> None:
    """Start the Java process that all sessions of this process use, or connect to spark-submit's.

    Java gets a session of its own in the operating system, so that a signal to the group of this
    process, such as Ctrl-C, does not end it before this process. It ends when its standard input,
    a pipe from this process, is closed: also if this process is killed.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if _GATEWAY in os.environ:
        SparkContext._ensure_initialized()
        return
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    options = f"{use_archive_options(java, archive_path(java))} {ARROW_OPTIONS}".strip()
    # A shell, which spark-submit takes this process for, shows its progress.
    ours = {_JAVA_OPTIONS: options, _SHOW_PROGRESS: "false"}
    conf = SparkConf().setAll(list((ours | dict(given)).items()))
    with _output(log_file, verbose) as output, driver_python(os.environ):
        begin = output.seek(0, os.SEEK_END) if output.seekable() else 0
        popen = {"stdout": output, "stderr": output, "start_new_session": True}
        try:
            gateway = launch_gateway(conf, popen)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            text = _last_output(output, begin)
            if refused := _REFUSED.search(text):
                raise ConfigError(f"Spark does not start: {refused[1]}") from error
            raise BackendUnavailable("Java did not start", text) from error
    SparkContext._ensure_initialized(gateway=gateway)
    _passed.update(given)


def _output(log_file: Path | None, verbose: bool) -> AbstractContextManager[IO[Any]]:
    """Return the file for Java's output. An unnamed file keeps the reason of a failed start."""
    if verbose:
        return nullcontext(sys.__stderr__ or sys.stderr)
    if log_file is None:
        return tempfile.TemporaryFile()
    log_file.parent.mkdir(parents=True, exist_ok=True)
    return log_file.open("ab+")


def _last_output(output: IO[Any], begin: int) -> str:
    """Return the end of the output since `begin`, if it can be read."""
    if not output.readable():
        return "see the output above"
    output.seek(max(begin, output.seek(0, os.SEEK_END) - _SHOWN_BYTES))
    text: bytes = output.read()
    return text.decode(errors="replace").strip()
