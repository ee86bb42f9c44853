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
from tailrace.pipeline.run import Ending, PipelineRun


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
class RunLook:
    """A run at one moment, so many seconds after its start.

    `held_by` names the writer that the reader waits for, if it does.
    """

    pipeline: str
    seconds: float
    rows_read: int
    unreadable: int
    held_by: str | None
    writers: tuple[WriterReport, ...]


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run at its end: how it ended, what failed, and where Spark's log is."""

    ending: str
    last: RunLook
    troubles: tuple[str, ...]
    spark_log: str | None


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
    """Looks at a run, each with rates since the look before. For one thread."""

    def __init__(self, hub: Hub, run: PipelineRun, rows_before: Mapping[str, int]) -> None:
        self._hub = hub
        self._run = run
        self._before = rows_before
        self._last: dict[str, tuple[float, int]] = {}

    def look(self, seconds: float) -> RunLook:
        """The run now, so many seconds after its start."""
        progress = self._run.progress()
        return RunLook(
            pipeline=self._run.definition.name,
            seconds=round(seconds, 3),
            rows_read=progress.rows_read,
            unreadable=progress.bad_read,
            held_by=progress.held_by,
            writers=tuple(
                self._writer(each.name, each.state, each.behind, seconds)
                for each in progress.writers
            ),
        )

    def end(self, seconds: float, ending: Ending) -> RunReport:
        """The run at its end; rates are over the whole of it."""
        self._last.clear()
        engines = {each.engine for each in self._run.definition.writers}
        log = spark_directory(self._hub.backend.name) / "spark.log"
        return RunReport(
            ending=ending.name.lower(),
            last=self.look(seconds),
            troubles=tuple(self._run.troubles()),
            spark_log=str(log) if Engine.SPARK in engines else None,
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
