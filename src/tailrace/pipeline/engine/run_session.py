"""The Spark session of a run, which all its writers share, and the next one if it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.errors import ConfigError
from tailrace.spark.cluster.application import NoExecutors, has_ended
from tailrace.spark.cluster.master import is_forgotten
from tailrace.spark.session import is_started, stop_started

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class RunSession:
    """The session that `start` returns. For any thread.

    A session that Tailrace started and that has ended, by its cluster or because Java was killed,
    is replaced by the next one: so the writers continue by themselves when the cluster is back.
    """

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._mutex = threading.Lock()
        self._session = start()
        self._is_ours = is_started(self._session.sparkContext)

    @property
    def present(self) -> SparkSession:
        """The session of the run. It may have ended."""
        return self._session

    def running(self, *, has_no_executors: bool) -> SparkSession:
        """Return the session of the run; start the next one if it has ended.

        A session without executors has ended too, if its master does not know it. `NoExecutors` if
        no session can be started now. `ConfigError` if the program that runs the pipeline had
        started the session that has ended.
        """
        with self._mutex:
            context = self._session.sparkContext
            if has_no_executors and self._is_ours and _is_forgotten(context):
                stop_started()
            if has_ended(context):
                self._session = self._next()
            return self._session

    def _next(self) -> SparkSession:
        if not self._is_ours:
            raise ConfigError(
                "the Spark session of this process has ended",
                "start another session, and run the pipeline again",
            )
        try:
            return self._start()
        except Exception as error:  # It has started before, so it can start again.
            raise NoExecutors(f"Spark has ended, and cannot start again yet: {error}") from error


def _is_forgotten(context: SparkContext) -> bool:
    return not has_ended(context) and is_forgotten(str(context.master), str(context.applicationId))
