"""Running a pipeline: finding its definition, and what is told of the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from tailrace.errors import ConfigError
from tailrace.hub import Hub
from tailrace.operations.letters import count_letters
from tailrace.pipeline.books import State, WriterName, WriterState, stored_state
from tailrace.pipeline.definition import Engine, PipelineDefinition
from tailrace.pipeline.driving import spark_directory
from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.registry import find
from tailrace.pipeline.run import Ending, PipelineRun, WriterProgress
from tailrace.source.reader import Until

_NEW: Final = WriterState()


@dataclass(frozen=True, slots=True)
class WriterReport:
    """A writer at one moment of a run. `rows` were delivered and `parked` put away in this run."""

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

    `starting` is what it waits for before there are writers; `held_by` names the writer that the
    reader waits for, if it does.
    """

    pipeline: str
    seconds: float
    starting: str | None
    rows_read: int
    unreadable: int
    held_by: str | None
    writers: tuple[WriterReport, ...]


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run at its end: how it ended, what failed, and where Spark's log is.

    `empty` is what the source says when there was nothing to read; `dead_letters` of the pipeline
    wait for somebody.
    """

    ending: str
    empty: str | None
    last: RunLook
    troubles: tuple[str, ...]
    dead_letters: int
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


def states_so_far(hub: Hub, definition: PipelineDefinition) -> dict[str, WriterState]:
    """How each writer was before this run."""
    names = (WriterName(definition.name, each.name) for each in definition.writers)
    return {str(name): stored_state(hub.backend, name) for name in names}


class Watch:
    """Looks at a run, each with rates since the look before. For one thread."""

    def __init__(self, hub: Hub, run: PipelineRun, before: Mapping[str, WriterState]) -> None:
        self._hub = hub
        self._run = run
        self._before = before
        engines = {each.engine for each in run.definition.writers}
        self._on_spark = Engine.SPARK in engines
        self._last: dict[str, tuple[float, int]] = {}

    def look(self, seconds: float) -> RunLook:
        """The run now, so many seconds after its start."""
        progress = self._run.progress()
        return RunLook(
            pipeline=self._run.definition.name,
            seconds=round(seconds, 3),
            starting=None if progress.writers else "Spark" if self._on_spark else "its writers",
            rows_read=progress.rows_read,
            unreadable=progress.bad_read,
            held_by=progress.held_by,
            writers=tuple(
                self._writer(each, seconds, read=not progress.reading) for each in progress.writers
            ),
        )

    def end(self, seconds: float, ending: Ending) -> RunReport:
        """The run at its end; rates are over the whole of it."""
        self._last.clear()
        log = spark_directory(self._hub.backend.name) / "spark.log"
        return RunReport(
            ending=ending.name.lower(),
            empty=None if self._run.progress().rows_read else self._run.empty,
            last=self.look(seconds),
            troubles=tuple(self._run.troubles()),
            dead_letters=self._letters(),
            spark_log=str(log) if self._on_spark else None,
        )

    def _letters(self) -> int:
        registered = find(self._hub.backend.store, self._run.definition.name)
        return 0 if registered is None else sum(count_letters(self._hub, registered).values())

    def _writer(self, writer: WriterProgress, seconds: float, *, read: bool) -> WriterReport:
        name, state = writer.name, writer.state
        # Before it has begun, a writer does not know yet what it delivered in earlier runs.
        before = self._before.get(name, _NEW)
        rows = max(0, state.rows - before.rows)
        ended = read and state.state is State.STOPPED and self._run.until is Until.NOW
        since, rows_then = self._last.get(name, (0.0, 0))
        rate = (rows - rows_then) / (seconds - since) if seconds > since else 0.0
        self._last[name] = seconds, rows
        return WriterReport(
            name=name,
            state="done" if ended and not writer.behind else state.state.value,
            rows=rows,
            rows_per_second=round(max(0.0, rate), 1),
            behind=writer.behind,
            parked=max(0, state.parked - before.parked),
            position=state.position,
            error=state.error,
        )
