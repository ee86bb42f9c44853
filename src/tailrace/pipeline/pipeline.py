"""A pipeline as its users define and run it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Self

from tailrace.errors import PipelineFailed
from tailrace.hub import Hub
from tailrace.pipeline.defining import (
    check_reader,
    check_short_name,
    pipeline_definition,
    writer_definition,
)
from tailrace.pipeline.definition import (
    BATCH_ROWS,
    LOG_BYTES_MAX,
    PROGRESS_INTERVAL,
    STOP_TIMEOUT,
    CatchUp,
    Engine,
    PipelineDefinition,
    WriterDefinition,
)
from tailrace.pipeline.driving import Driver, DriverOf, drive_directly, spark_directory
from tailrace.pipeline.function import Function
from tailrace.pipeline.run import Ending, PipelineRun
from tailrace.pipeline.toml import load_pipeline
from tailrace.pipeline.writer import Writer
from tailrace.source.reader import Reader, Until

MASTER: Final = "local[*]"

TASK_TRIES: Final = 4
"""So often Spark tries a task on one host too, as it does by itself on a cluster."""

_LOCAL: Final = re.compile(r"local\[([^],]+)\]")


class Pipeline:
    """One reader and any number of writers. A definition: nothing is opened before `run`.

    The reader appends to a commit log, the topic ``NAME.commits``, of `partitions` partitions. With
    ``catch_up="all"`` it reads on after a restart only when every writer has what was there. It
    pauses while about `log_bytes_max` of the log wait for the slowest writer. A clean stop gives
    writers `stop_timeout` to finish what is under way.
    """

    def __init__(
        self,
        name: str,
        reader: Reader,
        *,
        partitions: int = 1,
        catch_up: str = CatchUp.NONE,
        log_bytes_max: int | str = LOG_BYTES_MAX,
        stop_timeout: timedelta | str = STOP_TIMEOUT,
        progress_interval: timedelta | str = PROGRESS_INTERVAL,
    ) -> None:
        self._options: dict[str, Any] = {
            "partitions": partitions,
            "catch_up": catch_up,
            "log_bytes_max": log_bytes_max,
            "stop_timeout": stop_timeout,
            "progress_interval": progress_interval,
        }
        self.name = check_short_name("pipeline", name)
        self.reader = check_reader(reader)
        self.writers: tuple[WriterDefinition, ...] = ()
        self._origin = ""

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Pipeline:
        """The pipeline that a TOML file defines; `ConfigError` names the file and the key."""
        definition = load_pipeline(path)
        pipeline = cls(
            definition.name,
            definition.reader,
            partitions=definition.partitions,
            catch_up=definition.catch_up,
            log_bytes_max=definition.log_bytes_max,
            stop_timeout=definition.stop_timeout,
            progress_interval=definition.progress_interval,
        )
        pipeline.writers, pipeline._origin = definition.writers, definition.origin
        return pipeline

    @property
    def definition(self) -> PipelineDefinition:
        """The whole of it, checked; `InvalidValue` or `InvalidName` for what is not right."""
        checked = pipeline_definition(self.name, self.reader, self.writers, **self._options)
        return replace(checked, origin=self._origin)

    def write(
        self,
        name: str,
        writer: Writer,
        *,
        namespace: str | None = None,
        functions: Sequence[Function] = (),
        on_error: str = "stop",
        engine: str = Engine.SPARK,
        start: str = "earliest",
        batch_rows: int = BATCH_ROWS,
    ) -> Self:
        """Add a writer. It gets the records whose namespace matches, through the functions.

        `namespace` is a name or a ``/regular expression/``; without one it gets all. `on_error` is
        ``stop`` (this writer, at the record), ``park`` (the record goes to the dead letters, the
        writer goes on) or ``stop-all``. `engine` is ``spark`` or ``direct``. A writer that is new
        to a pipeline which has run begins at the ``earliest`` record or the ``latest``.
        """
        added = writer_definition(
            name,
            writer,
            pipeline=self.name,
            namespace=namespace,
            functions=functions,
            on_error=on_error,
            engine=engine,
            start=start,
            batch_rows=batch_rows,
        )
        self.writers = (*self.writers, added)
        return self

    def run(self, hub: Hub, *, once: bool = False, master: str = MASTER) -> Ending:
        """Read and write until stopped; with `once`, what is there now and no more.

        `ConfigError` when something cannot be reached, before anything has happened;
        `PipelineFailed` when the reader or a writer failed.
        """
        run = self.prepare(hub, until=Until.NOW if once else Until.STOPPED, master=master)
        ending = run.run()
        if ending is Ending.FAILED:
            raise PipelineFailed(self.name, run.troubles())
        return ending

    def prepare(
        self, hub: Hub, *, until: Until, master: str = MASTER, verbose: bool = False
    ) -> PipelineRun:
        """A run, to be started by its `run`; Spark is started then, if a writer needs it."""
        definition = self.definition
        driver_of = _drivers(definition, hub, master, verbose)
        return PipelineRun(hub, definition, until=until, driver_of=driver_of)


def _drivers(definition: PipelineDefinition, hub: Hub, master: str, verbose: bool) -> DriverOf:
    if all(each.engine is Engine.DIRECT for each in definition.writers):
        return drive_directly

    @functools.cache
    def drivers() -> DriverOf:
        # Here, because pipelines by the direct engine need no Spark, and those by Spark learn
        # from `start` what is missing for it.
        from tailrace.spark.session import start

        log_file = spark_directory(hub.backend.name) / "spark.log"
        again = _LOCAL.sub(rf"local[\1,{TASK_TRIES}]", master)
        spark = start(definition.name, master=again, log_file=log_file, verbose=verbose)
        from tailrace.pipeline.on_spark import drivers_on

        return drivers_on(spark)

    def driver_of(hub: Hub, pipeline: PipelineDefinition, writer: WriterDefinition) -> Driver:
        return drivers()(hub, pipeline, writer)

    return driver_of
