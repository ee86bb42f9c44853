"""Writers on Spark: a streaming query wakes each writer.

A query over the commit log wakes the writer when there are records; the ledger says which of them
to deliver. So a checkpoint that is missing, old or too new only changes how soon the writer is
woken.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.hub.hub import Hub
from tailrace.pipeline.definition.definition import PipelineDefinition, WriterDefinition
from tailrace.pipeline.definition.settings import Engine
from tailrace.pipeline.engine.driver import (
    POLL_S,
    DirectDriver,
    Driver,
    DriverOf,
    EndOffsets,
    hub_directory,
    spark_directory,
)
from tailrace.pipeline.engine.run_session import RunSession
from tailrace.pipeline.engine.spark import SparkEngine
from tailrace.pipeline.writer_status import WaitsFor
from tailrace.pipeline.writing.writer_run import WriterRun
from tailrace.spark.cluster.application import NoExecutors, while_running

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

QUERY_TIMEOUT_S: Final = 2.0
"""How long a writer with lag waits for its query before it drains by itself."""


class SparkDriver:
    """Drives a writer by a streaming query over the commit log."""

    def __init__(self, sessions: RunSession, hub: Hub, log: str, directory: Path) -> None:
        self._sessions = sessions
        self._spark = sessions.present
        self._hub = hub
        self._log = log
        self._directory = directory
        self._query: StreamingQuery | None = None
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob("stop-*"):
            left.unlink(missing_ok=True)
        self.engine = SparkEngine(self._spark, hub, log, directory)

    def drive(self, run: WriterRun, limit: EndOffsets, finished: Callable[[], bool]) -> None:
        """See `Driver`. The query wakes the writer; the ledger says what to deliver."""
        run.begin_or_wait()
        self._store_placements(run)
        due = 0.0
        try:
            while True:
                if run.overtaken():
                    run.begin_or_wait()
                    due = 0.0
                if run.clock.monotonic() >= due or run.try_is_due:
                    self._follow_session(run)
                    run.drain(limit())
                    due = run.clock.monotonic() + QUERY_TIMEOUT_S
                if finished():
                    run.end()  # Waits for the batch of the query; stopping would cancel it.
                    return
                if self._keep_query(run, limit):
                    due = 0.0
                run.stopping.wait(POLL_S)
        except Exception as error:
            run.fail(error)  # Before the query is stopped: the error of its batch would hide it.
        finally:
            self._stop_query()
            self.engine.executors.close()

    def abandon(self) -> None:
        """Cancel Spark's jobs, so that the process can exit."""
        context = self._spark.sparkContext
        with suppress(NoExecutors), while_running(context):
            context.cancelAllJobs()

    def _follow_session(self, run: WriterRun) -> None:
        """Work on the next session of the run, if its cluster has ended the present one."""
        if run.failed or run.stopping.is_set() or (run.outage and not run.try_is_due):
            return
        starved = run.outage is not None and run.outage.waits_for is WaitsFor.EXECUTORS
        try:
            session = self._sessions.running(has_no_executors=starved)
        except Exception as error:
            run.wait_or_fail(error)
            return
        if session is not self._spark:
            self._stop_query()
            self.engine.executors.close()
            self._spark = session
            run.engine = self.engine = SparkEngine(session, self._hub, self._log, self._directory)
            self._store_placements(run)

    def _store_placements(self, run: WriterRun) -> None:
        """Let the hub store where the work is done, once there is work: `explain` shows it."""
        self.engine.executors.on_placed = run.ledger.store_placement

    def _keep_query(self, run: WriterRun, limit: EndOffsets) -> bool:
        """Start the query, also after it has ended; True if it is the first of this session."""
        try:
            with while_running(self._spark.sparkContext):
                if self._query is None:
                    self._query = self._start(run, limit)
                    return True
                if self._query.exception() is not None:
                    self._query = self._start_over(run, limit, self._query)
        except NoExecutors as error:
            if not run.failed and run.outage is None:
                run.wait_or_fail(error)
        return False

    def _start(self, run: WriterRun, limit: EndOffsets) -> StreamingQuery:
        options = {"hub": str(hub_directory(self._hub)), "subscribe": self._log}
        options |= {"startingOffsets": "latest", "failOnDataLoss": "false"}
        rows = self._spark.readStream.format("tailrace").options(**options).load()
        return (
            rows.writeStream.queryName(str(run.name))
            .option("checkpointLocation", str(self._checkpoint))
            .foreachBatch(lambda _rows, _number: run.drain(limit()))
            .start()
        )

    def _start_over(
        self, run: WriterRun, limit: EndOffsets, ended: StreamingQuery
    ) -> StreamingQuery:
        """Delete the checkpoint and start the query again. The checkpoint is only a cache."""
        _log.warning("the query of writer %s ended: %s", run.name, ended.exception())
        run.stopping.wait(QUERY_TIMEOUT_S)
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        return self._start(run, limit)

    def _stop_query(self) -> None:
        query, self._query = self._query, None
        if query is not None:
            with suppress(NoExecutors), while_running(self._spark.sparkContext):
                query.stop()

    @property
    def _checkpoint(self) -> Path:
        return self._directory / "checkpoint"


def spark_drivers(sessions: RunSession) -> DriverOf:
    """Return drivers by the engine that each writer's definition names."""

    def driver_of(hub: Hub, pipeline: PipelineDefinition, writer: WriterDefinition) -> Driver:
        if writer.engine is Engine.DIRECT:
            return DirectDriver(hub)
        directory = spark_directory(hub_directory(hub)) / pipeline.name / writer.name
        return SparkDriver(sessions, hub, pipeline.commit_log, directory)

    return driver_of
