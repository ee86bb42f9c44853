"""A pipeline as users define and run it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Final, Self, TextIO

from msgspec.structs import asdict

from tailrace.backend.capabilities import segments_of
from tailrace.duration import parse_duration
from tailrace.errors import Busy, PipelineFailed
from tailrace.hub.hub import Hub
from tailrace.pipeline.attended_run import AttendedRun, OnProgress
from tailrace.pipeline.definition.checks import pipeline_definition, writer_definition
from tailrace.pipeline.definition.definition import (
    FollowedSource,
    PipelineDefinition,
    WriterDefinition,
)
from tailrace.pipeline.definition.options import resolve_paths
from tailrace.pipeline.definition.settings import (
    Engine,
    PipelineSettings,
    WriterSettings,
    read_settings,
)
from tailrace.pipeline.definition.toml import load_pipeline
from tailrace.pipeline.engine.driver import (
    Driver,
    DriverOf,
    direct_driver,
    hub_directory,
    spark_directory,
)
from tailrace.pipeline.report import RunOutcome, RunReport
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.writer import Writer
from tailrace.source.reader import Reader, Until, check_reader
from tailrace.source.source import Source
from tailrace.topic.composite import check_short_name

_PIPELINE: Final = PipelineSettings()
_WRITER: Final = WriterSettings()

ONCE_WAIT: Final = timedelta(minutes=10)
"""How long a writer waits for its sink in a run that ends by itself."""

TASK_TRIES: Final = 4
"""The number of times that Spark tries a task in local mode, which is its default on a cluster."""

_STARTING: Final = threading.Lock()
"""Held while a `Pipeline` object checks that it has no other run. Not in the object, so that it can
be copied."""


class Pipeline:
    """One reader and any number of writers. Defining a pipeline opens nothing; `run` does.

    The reader appends to a commit log, the topic ``NAME.commits``. With a `Source` instead, which
    tasks of its own read, the writers consume the commit log of the source. The keyword arguments
    are the settings of `PipelineSettings`; durations and sizes may be text: ``"30s"``, ``"10GiB"``.
    `InvalidValue` or `InvalidName` for an argument that is not valid.
    """

    def __init__(
        self,
        name: str,
        reader: Reader | Source | FollowedSource,
        *,
        partitions: int = _PIPELINE.partitions,
        engine: str = _PIPELINE.engine,
        reading: str = _PIPELINE.reading,
        catch_up: str = _PIPELINE.catch_up,
        log_bytes_max: int | str = _PIPELINE.log_bytes_max,
        stop_timeout: timedelta | str = _PIPELINE.stop_timeout,
        progress_interval: timedelta | str = _PIPELINE.progress_interval,
        spark: Mapping[str, object] = _PIPELINE.spark,
    ) -> None:
        self.name = check_short_name("pipeline", name)
        self.reader = _readable(reader)
        self.writers: tuple[WriterDefinition, ...] = ()
        self.settings = read_settings(
            PipelineSettings,
            {
                "partitions": partitions,
                "engine": engine,
                "reading": reading,
                "catch_up": catch_up,
                "log_bytes_max": log_bytes_max,
                "stop_timeout": stop_timeout,
                "progress_interval": progress_interval,
                "spark": spark,
            },
        )
        self._origin = ""
        self._running: AttendedRun | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Pipeline:
        """Return the pipeline of a TOML file; `ConfigError` names the file and the key."""
        definition = load_pipeline(path)
        pipeline = cls(definition.name, definition.reader, **asdict(definition.settings))
        pipeline.writers, pipeline._origin = definition.writers, definition.origin
        return pipeline

    @property
    def source(self) -> Source:
        """The source of a pipeline with ``reading="shared"``: each run of it, in any process, is
        one more task that reads. `InvalidValue` for any other pipeline."""
        return self.definition.source

    @property
    def definition(self) -> PipelineDefinition:
        """The complete definition; `InvalidValue` if there is no writer or two have one name."""
        checked = pipeline_definition(self.name, self.reader, self.writers, self.settings)
        return replace(checked, origin=self._origin)

    def write(
        self,
        name: str,
        writer: Writer,
        *,
        namespace: str | None = _WRITER.namespace,
        functions: Sequence[Function] = _WRITER.functions,
        on_error: str = _WRITER.on_error,
        engine: str | None = _WRITER.engine,
        start: str = _WRITER.start,
        batch_rows: int = _WRITER.batch_rows,
    ) -> Self:
        """Add a writer. The writer gets the records whose namespace matches, after the functions.

        The keyword arguments are the settings of `WriterSettings`. `namespace` is a name or a
        ``/regular expression/``; None matches all. `on_error` is ``stop`` (stop this writer at the
        record), ``park`` (move the record to the dead letters and continue) or ``stop-all``.
        `engine` is ``spark``, ``direct``, or None for the pipeline's. `start` is where a writer
        starts that has not run before: ``earliest``, ``latest``, or ``again``, which is earliest
        even if the sink has rows of this pipeline from another hub.
        """
        added = writer_definition(
            name,
            writer,
            pipeline=self.name,
            default_engine=self.settings.engine,
            namespace=namespace,
            functions=functions,
            on_error=on_error,
            engine=engine,
            start=start,
            batch_rows=batch_rows,
        )
        self.writers = (*self.writers, added)
        return self

    def run(
        self,
        hub: Hub,
        *,
        once: bool = False,
        allow_empty: bool = False,
        wait: timedelta | str | None = None,
        master: str | None = None,
        progress: OnProgress | bool | None = None,
    ) -> RunReport:
        """Run the pipeline until it is stopped; with `once`, until all present data is delivered.

        A writer whose sink cannot be reached waits for it, at the start too, and the other writers
        continue. After `wait` it fails; None waits without end, and with `once` 10 minutes.

        `master` is the Spark master. None is the one that Spark is configured with, by
        ``spark-submit`` or in ``spark-defaults.conf``, else ``local[*]``. A Spark session that this
        process already has is used as it is, and never stopped.

        Returns what was read and written. Raises `NothingToRead` for a run with `once` and without
        `allow_empty` if the reader finds nothing to read, `ConfigError` before the run starts if
        the source cannot be read or a sink refuses its writer, `BackendUnavailable` if the Spark
        master cannot be reached, `Busy` if the pipeline already runs, and `PipelineFailed`, with
        the report, if the reader or a writer failed.

        By default, progress is shown on standard error if that is a terminal; with `progress` True
        always, with False never. A function gets a `RunProgress` about twice a second and once at
        the end, in this thread. `stop` ends the run; so do Ctrl-C and an error of the function,
        which are raised once the batches in flight are finished.
        """
        until = Until.NOW if once else Until.STOPPED
        run = self.prepare(hub, until=until, allow_empty=allow_empty, wait=wait, master=master)
        if callable(progress):
            report = self.attend(run, progress)
        elif progress or (progress is None and _has_terminal()):
            # Imported here: most programs have no terminal.
            from tailrace.pipeline.display import RunDisplay

            seconds = self.settings.stop_timeout.total_seconds()
            with RunDisplay(on_stop=f"stopping within {seconds:g} s") as display:
                report = self.attend(run, display)
        else:
            report = self.attend(run, None)
        if report.outcome is RunOutcome.FAILED:
            raise PipelineFailed(self.name, report.failures, report)
        return report

    def stop(self) -> bool:
        """Stop the run in progress soon: its writers finish their batches within `stop_timeout`.

        If they take longer, the outcome is `UNFINISHED` and the batches are delivered again. This
        method returns at once: False if there is no run to stop. Any thread and any signal handler
        may call it.
        """
        attended = self._running
        if attended is None:
            return False
        attended.stop()
        return True

    def prepare(
        self,
        hub: Hub,
        *,
        until: Until,
        allow_empty: bool = False,
        wait: timedelta | str | None = None,
        master: str | None = None,
        spark: Mapping[str, str] = {},
        verbose: bool = False,
    ) -> PipelineRun:
        """Return a run that is not started. Its `run` starts Spark if a writer needs Spark.

        `spark` has settings that replace those of the definition.
        """
        definition = _with_absolute_paths(self.definition)
        driver_of = _drivers(definition, hub, master, spark, verbose)
        longest = ONCE_WAIT if wait is None else parse_duration(wait, "wait")
        bounded = wait is not None or until is Until.NOW
        return PipelineRun(
            hub,
            definition,
            until=until,
            driver_of=driver_of,
            allow_empty=allow_empty,
            wait_s=longest.total_seconds() if bounded else None,
            master=None if driver_of is direct_driver else master,
        )

    def attend(self, run: PipelineRun, on_progress: OnProgress | None) -> RunReport:
        """Run a prepared run in a thread of its own, and return its report.

        Until it ends, `stop` stops it. `Busy` if this object has another run in progress.
        """
        attended = AttendedRun(run)
        with _STARTING:
            if self._running is not None:
                raise Busy(
                    f"this Pipeline object already runs pipeline {self.name}",
                    "stop() that run and wait for its end, or define another Pipeline",
                )
            self._running = attended
        try:
            return attended.attend(on_progress)
        finally:
            self._running = None


def _readable(reader: object) -> Reader | FollowedSource:
    """Return what a pipeline reads, by its definition."""
    if isinstance(reader, Source):
        return FollowedSource(reader.name, reader.origin)
    return reader if isinstance(reader, FollowedSource) else check_reader(reader)


def _has_terminal() -> bool:
    stderr: TextIO | None = sys.stderr  # None in a process without standard streams
    return stderr is not None and stderr.isatty()


def _with_absolute_paths(definition: PipelineDefinition) -> PipelineDefinition:
    """Return the definition with absolute paths for its writers.

    Spark's workers have working directories of their own, and that of this process may change.
    """
    directory = Path.cwd()
    writers = tuple(
        replace(each, writer=resolve_paths(each.writer, directory)) for each in definition.writers
    )
    return replace(definition, writers=writers)


def _drivers(
    definition: PipelineDefinition,
    hub: Hub,
    master: str | None,
    settings: Mapping[str, str],
    verbose: bool,
) -> DriverOf:
    if all(each.engine is Engine.DIRECT for each in definition.writers):
        return direct_driver
    segments_of(hub.backend, "run writers on Spark")

    @cache
    def drivers() -> DriverOf:
        # Imported here: pipelines on the direct engine run without Spark, and `start` reports what
        # is missing for Spark.
        from tailrace.pipeline.engine.run_session import RunSession
        from tailrace.spark.session import start

        log_file = spark_directory(hub_directory(hub)) / "spark.log"
        options = {**definition.settings.spark, **settings}
        sessions = RunSession(
            partial(
                start,
                definition.name,
                master=master,
                log_file=log_file,
                verbose=verbose,
                options=options,
                task_tries=TASK_TRIES,
            )
        )
        from tailrace.pipeline.engine.spark_driver import spark_drivers

        return spark_drivers(sessions)

    def driver_of(hub: Hub, pipeline: PipelineDefinition, writer: WriterDefinition) -> Driver:
        return drivers()(hub, pipeline, writer)

    return driver_of
