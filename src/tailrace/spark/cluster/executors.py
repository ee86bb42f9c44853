"""A limit for how long a job waits for the executors of a cluster.

Without it, a job on a cluster without free cores or memory waits without end, and only Spark's log
says so.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import BackendUnavailable
from tailrace.spark.cluster.application import NoExecutors, while_running
from tailrace.spark.cluster.master import check_address
from tailrace.spark.cluster.python_start import while_python_starts
from tailrace.spark.cluster.settings import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext


WAIT_S: Final = 6.0
"""How long a job waits for the first executor."""

POLL_S: Final = 0.5


@contextmanager
def limited_wait_for_executors(context: SparkContext) -> Iterator[None]:
    """Cancel the jobs that this thread runs in the block, if no executor is there to run them.

    The block then raises `NoExecutors`, and later jobs may find executors; also if the session has
    ended, or if an executor cannot run its Python. In local mode nothing is watched.
    """
    master = str(context.master)
    if is_local(master):
        with while_running(context), while_python_starts(context):
            yield
        return
    watch = _Watch(context)
    with while_running(context), while_python_starts(context):
        context.addJobTag(watch.tag)
        watch.start()
        try:
            yield
        except Exception as error:
            if watch.cancelled:
                raise no_executors(master) from error
            raise
        finally:
            watch.stop()
            context.removeJobTag(watch.tag)


def executors_of(context: SparkContext) -> frozenset[str]:
    """Return the names of the executors that a session on a cluster has now."""
    java: Any = context._jsc
    return frozenset(filter(None, str(java.sc().getExecutorIds().mkString(",")).split(",")))


class _Watch:
    """Cancels tagged jobs once there has been no executor for too long."""

    def __init__(self, context: SparkContext) -> None:
        self.tag = f"tailrace-{uuid.uuid4()}"
        self.cancelled = False
        self._context = context
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="executors", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(Exception):  # Spark has ended, and so does the block.
            self._cancel_without_executors()

    def _cancel_without_executors(self) -> None:
        since = time.monotonic()
        while not self._ended.wait(POLL_S):
            if not self.cancelled and executors_of(self._context):
                since = time.monotonic()
            elif time.monotonic() - since >= WAIT_S:
                self.cancelled = True
                # Again and again: the job may not be submitted yet.
                self._context.cancelJobsWithTag(self.tag)


def no_executors(master: str) -> NoExecutors:
    """Return the error of a cluster without executors, which may have lost its master."""
    try:
        check_address(master)
    except BackendUnavailable as unreachable:
        return NoExecutors(f"no executor has started: {unreachable}")
    return NoExecutors(
        f"no executor of {master} has started: its workers have no free cores or memory, or their "
        "executors cannot connect to this host",
        "free some, add workers, or set spark.cores.max or spark.executor.memory lower",
    )
