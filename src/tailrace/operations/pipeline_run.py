"""Running a pipeline: finding its definition, and what is told of the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import msgspec

from tailrace.errors import ConfigError
from tailrace.hub import Hub
from tailrace.pipeline.books import WriterName, WriterState
from tailrace.pipeline.definition import Engine, PipelineDefinition
from tailrace.pipeline.driving import spark_directory
from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.run import Ending, PipelineRun, RunProgress


@dataclass(frozen=True, slots=True)
class WriterReport:
    """A writer at one moment of a run. `rows` were delivered in this run."""

    name: str
    state: str
    rows: int
    rows_per_second: float
    behind: int
    parked: int
    position: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run at one moment, or at its end: then `ending` says how it ended.

    `held_by` names the writer that the reader waits for, if it does.
    """

    pipeline: str
    ending: str | None
    seconds: float
    rows_read: int
    unreadable: int
    held_by: str | None
    writers: tuple[WriterReport, ...]
    troubles: tuple[str, ...] = ()
    spark_log: str | None = None


def load_definition(source: str) -> Pipeline:
    """The pipeline that a TOML file defines, or a module has: ``lake.toml``, ``lake:pipeline``.

    `ConfigError` where there is none. Nothing is opened.
    """
    module, colon, attribute = source.rpartition(":")
    if not colon or Path(source).exists() or source.endswith(".toml"):
        return Pipeline.from_file(source)
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        raise ConfigError(
            f"{source} cannot be loaded: {type(error).__name__}: {error}",
            "valid: a file such as lake.toml, or MODULE:ATTRIBUTE",
        ) from error
    if not isinstance(found, Pipeline):
        raise ConfigError(f"{source} is a {type(found).__name__}, not a tailrace.Pipeline")
    return found


def rows_so_far(hub: Hub, definition: PipelineDefinition) -> dict[str, int]:
    """The rows that each writer has delivered until now, over all its runs."""
    rows = {}
    for each in definition.writers:
        name = WriterName(definition.name, each.name)
        stored = hub.backend.table.get(*name.key("state"))
        state = msgspec.json.decode(stored, type=WriterState) if stored else WriterState()
        rows[str(name)] = state.rows
    return rows


class Watch:
    """Reports of a run, with rates since the report before. For one thread."""

    def __init__(self, hub: Hub, run: PipelineRun, rows_before: Mapping[str, int]) -> None:
        self._hub = hub
        self._run = run
        self._before = rows_before
        self._last: dict[str, tuple[float, int]] = {}

    def look(self, seconds: float) -> RunReport:
        """The run now, so many seconds after its start."""
        progress = self._run.progress()
        return self._report(progress, seconds, None)

    def end(self, seconds: float, ending: Ending) -> RunReport:
        """The run at its end; rates are over the whole of it."""
        self._last.clear()
        return self._report(self._run.progress(), seconds, ending)

    def _report(self, progress: RunProgress, seconds: float, ending: Ending | None) -> RunReport:
        definition = self._run.definition
        on_spark = any(each.engine is Engine.SPARK for each in definition.writers)
        log = spark_directory(self._hub.backend.name) / "spark.log" if on_spark else None
        return RunReport(
            pipeline=definition.name,
            ending=None if ending is None else ending.name.lower(),
            seconds=round(seconds, 3),
            rows_read=progress.rows_read,
            unreadable=progress.bad_read,
            held_by=progress.held_by,
            writers=tuple(
                self._writer(each.name, each.state, each.behind, seconds)
                for each in progress.writers
            ),
            troubles=() if ending is None else tuple(self._run.troubles()),
            spark_log=None if log is None else str(log),
        )

    def _writer(self, name: str, state: WriterState, behind: int, seconds: float) -> WriterReport:
        # Before it has begun, a writer does not know yet what it delivered in earlier runs.
        rows = max(0, state.rows - self._before.get(name, 0))
        since, rows_then = self._last.get(name, (0.0, 0))
        rate = (rows - rows_then) / (seconds - since) if seconds > since else 0.0
        self._last[name] = seconds, rows
        return WriterReport(
            name=name,
            state=state.state.value,
            rows=rows,
            rows_per_second=round(max(0.0, rate), 1),
            behind=behind,
            parked=state.parked,
            position=state.position,
            error=state.error,
        )
