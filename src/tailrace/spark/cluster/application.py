"""The end of a session that this process did not stop: clusters end applications by themselves.

A standalone master removes an application whose executors have failed too often, as they do while
its last worker stops. An operator may remove it too, Spark gives up if no master answers, and Java
may be killed, for example for lack of memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import BackendUnavailable
from tailrace.spark.cluster.settings import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext

ENDING_S: Final = 0.5
"""How long Spark may take to stop a session after it has ended the jobs of the session."""

_POLL_S: Final = 0.05


class NoExecutors(BackendUnavailable):
    """A cluster that has no executor for a job now, or one that cannot run its tasks."""


def has_ended(context: SparkContext) -> bool:
    """True if a session was stopped, by its cluster or by this process, or if Java has ended."""
    from py4j.protocol import Py4JError

    java: Any = context._jsc
    try:
        return java is None or bool(java.sc().isStopped())
    except (OSError, Py4JError):
        return True


@contextmanager
def while_running(context: SparkContext) -> Iterator[None]:
    """Raise `NoExecutors` instead of an error of the block, if the session has ended."""
    try:
        yield
    except NoExecutors:
        raise
    except Exception as error:
        if _ends(context):
            raise NoExecutors(
                f"Spark's session on {context.master} has ended: the master removed the "
                "application, or Java was killed"
            ) from error
        raise


def _ends(context: SparkContext) -> bool:
    """True if a session has ended, or is about to end on a cluster."""
    deadline = time.monotonic() + (0.0 if is_local(str(context.master)) else ENDING_S)
    while not has_ended(context):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True
