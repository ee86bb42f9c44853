"""Writers on Spark: each is driven by a streaming query of its own.

A query over the commit log says when there is something to do; what that is the ledger says. So a
checkpoint that is missing, behind or ahead changes nothing but how soon a writer is woken.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.hub import Hub
from tailrace.pipeline.definition import Engine, PipelineDefinition, WriterDefinition
from tailrace.pipeline.driving import (
    LOOK_S,
    DirectDriver,
    Driver,
    DriverOf,
    Limit,
    begin,
    spark_directory,
)
from tailrace.pipeline.spark_engine import SparkEngine
from tailrace.pipeline.writing import WriterRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 2.0
"""How long a writer that is behind waits for its query before it goes on without."""


class SparkDriver:
    """Drives a writer by a streaming query over the commit log."""

    def __init__(self, spark: SparkSession, hub: Hub, log: str, directory: Path) -> None:
        self._spark = spark
        self._hub = hub
        self._log = log
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob("stop-*"):
            left.unlink(missing_ok=True)
        self.engine = SparkEngine(spark, hub, directory)

    def drive(self, run: WriterRun, limit: Limit, finished: Callable[[], bool]) -> None:
        """See `Driver`. The query wakes the writer; the ledger says what there is to do."""
        query: StreamingQuery | None = None
        begin(run)
        due = 0.0
        try:
            while True:
                if run.overtaken():
                    begin(run)
                    due = 0.0
                if run.clock.monotonic() >= due:
                    run.drain(limit())
                    due = run.clock.monotonic() + PATIENCE_S
                if finished():
                    run.end()  # Waits for what the query has under way: to stop it would end that.
                    return
                if query is None:
                    query = self._start(run, limit)
                    due = 0.0
                elif query.exception() is not None:
                    query = self._start_over(run, limit, query)
                run.stopping.wait(LOOK_S)
        finally:
            if query is not None:
                query.stop()

    def abandon(self) -> None:
        """End Spark's jobs, so that the process can end."""
        self._spark.sparkContext.cancelAllJobs()

    def _start(self, run: WriterRun, limit: Limit) -> StreamingQuery:
        options = {"hub": self._hub.backend.name, "subscribe": self._log}
        options |= {"startingOffsets": "latest", "failOnDataLoss": "false"}
        rows = self._spark.readStream.format("tailrace").options(**options).load()
        return (
            rows.writeStream.queryName(str(run.name))
            .option("checkpointLocation", str(self._checkpoint))
            .foreachBatch(lambda _rows, _number: run.drain(limit()))
            .start()
        )

    def _start_over(self, run: WriterRun, limit: Limit, ended: StreamingQuery) -> StreamingQuery:
        """A checkpoint is only a cache: one that a query cannot go on from is made again."""
        _log.warning("the query of writer %s ended: %s", run.name, ended.exception())
        run.stopping.wait(PATIENCE_S)
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        return self._start(run, limit)

    @property
    def _checkpoint(self) -> Path:
        return self._directory / "checkpoint"


def drivers_on(spark: SparkSession) -> DriverOf:
    """Drivers by the engine that each writer's definition names."""

    def driver_of(hub: Hub, pipeline: PipelineDefinition, writer: WriterDefinition) -> Driver:
        if writer.engine is Engine.DIRECT:
            return DirectDriver(hub)
        directory = spark_directory(hub.backend.name) / pipeline.name / writer.name
        return SparkDriver(spark, hub, pipeline.commit_log, directory)

    return driver_of
