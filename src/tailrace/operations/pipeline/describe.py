"""Pipelines described: the state, progress and lag of each writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tailrace.backend.contract import Amount
from tailrace.clock import utc_time
from tailrace.errors import UnknownSource
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.operations.dead_letters.listing import count_letters
from tailrace.operations.pipeline.lookup import (
    FoundWriter,
    commit_log,
    find_pipeline,
    read_ledger,
    runner,
)
from tailrace.operations.source.describe import view_source
from tailrace.operations.source.health import judge_source
from tailrace.pipeline.catalog import RegisteredPipeline, pipelines
from tailrace.pipeline.last_run import find_last_run
from tailrace.pipeline.reading.reader_failure import find_failure
from tailrace.pipeline.writer_status import WaitsFor, WriterStatus
from tailrace.pipeline.writing.writer_ledger import WriterName, WriterState
from tailrace.topic.record_count import amount_left


@dataclass(frozen=True, slots=True)
class WriterView:
    """A writer.

    `rows` counts the rows delivered since its first start. `lag` is the number of records that are
    not acknowledged, of about `lag_bytes`. `marks` has the first offset that is not acknowledged,
    by partition of the commit log. `position` and `error` describe a failure. A writer that waits,
    waits for `waits_for`; `error` is the reason and `next_try` the time of its next try.
    `rows_per_second` is known only for the second of two views, see `with_rates`.
    """

    name: str
    type: str
    namespace: str
    engine: str
    on_error: str
    state: WriterStatus
    since: datetime | None
    rows: int
    parked: int
    lag: int
    lag_bytes: int
    marks: dict[str, int]
    dead_letters: int
    error: str | None
    position: str | None
    next_try: datetime | None = None
    waits_for: WaitsFor | None = None
    rows_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class PipelineView:
    """A pipeline.

    `running` is the process that runs it, if one does: a live run holds a name in the hub.
    `unreadable` counts the pending dead letters of its reader. `slowest` is the writer with the
    largest lag, if any has one. `reader_blocked` is True if the reader waits for that writer,
    because its lag exceeds `log_bytes_max`. `reader_failed` and `reader_error` are the time and
    cause of a failure of the reader, until it reads again. `reader_waits` is why the reader of a
    running pipeline finds nothing to read.

    `last_start` and `last_stop` are the times of the last run; `last_stop` is None if that run was
    killed, or runs. `start_error` is why the last run did not start. `starting` is True while a run
    has not begun to read and write, because it starts Spark. `follows` is True if the last run
    reads until it is stopped. `caught_up` is True if its reader had read everything that was there
    when it stopped; None if no run is stored. `run_command` is the command that runs the pipeline.

    `source` is the source that the pipeline follows, None if it reads by itself, and `source_state`
    is the state of that, and the reason, in words.
    """

    name: str
    reader: str
    commit_log: str
    running: str | None
    reader_failed: datetime | None
    reader_error: str | None
    unreadable: int
    slowest: str | None
    reader_blocked: bool
    writers: tuple[WriterView, ...]
    reader_waits: str | None
    last_start: datetime | None
    last_stop: datetime | None
    start_error: str | None
    starting: bool
    follows: bool
    caught_up: bool | None
    run_command: str
    source: str | None = None
    source_state: str | None = None

    @property
    def reader_unfinished(self) -> bool:
        """True if the last run ended before its reader had read everything that was there."""
        return not self.running and self.caught_up is False and self.reader_failed is None


def shown_state(state: WriterStatus, running: str | None) -> WriterStatus:
    """Return the state to show. A stored state other than FAILED is stale if nothing runs."""
    return state if running is not None or state is WriterStatus.FAILED else WriterStatus.STOPPED


def view_pipelines(hub: Hub, name: str | None = None) -> list[PipelineView]:
    """Return every pipeline of a hub, or the one with a name."""
    chosen = pipelines(hub.backend.store) if name is None else [find_pipeline(hub, name)]
    return [view_pipeline(hub, each) for each in chosen]


def view_pipeline(hub: Hub, pipeline: RegisteredPipeline) -> PipelineView:
    """Return a pipeline as it is now."""
    running = runner(hub, pipeline.name)
    log = commit_log(hub, pipeline)
    letters = count_letters(hub, pipeline)
    writers = tuple(
        _view(hub, FoundWriter(WriterName(pipeline.name, name), pipeline, held), log, running)
        for name, held in pipeline.writers.items()
    )
    writers = tuple(replace(each, dead_letters=letters.get(each.name, 0)) for each in writers)
    slowest = max(writers, key=lambda writer: writer.lag, default=None)
    failure = find_failure(hub.backend, pipeline.name)
    last = find_last_run(hub.backend, pipeline.name)
    held_bytes = 0 if slowest is None or running is None else slowest.lag_bytes
    return PipelineView(
        name=pipeline.name,
        reader=pipeline.reader,
        commit_log=pipeline.commit_log,
        running=running,
        reader_failed=None if failure is None else utc_time(failure.since_ms),
        reader_error=None if failure is None else failure.error,
        unreadable=letters.get(pipeline.name, 0),
        slowest=slowest.name if slowest is not None and slowest.lag else None,
        reader_blocked=held_bytes > pipeline.log_bytes_max,
        writers=writers,
        reader_waits=None if last is None or running is None else last.waiting,
        last_start=None if last is None else utc_time(last.started_ms),
        last_stop=None if last is None or last.ended_ms is None else utc_time(last.ended_ms),
        start_error=None if last is None or running is not None else last.start_error,
        starting=running is not None and (last is None or last.ended_ms is not None),
        follows=last is not None and last.follows,
        caught_up=None if last is None else last.caught_up,
        run_command=pipeline.run_command,
        source=pipeline.source or None,
        source_state=_source_state(hub, pipeline.source) if pipeline.source else None,
    )


def _source_state(hub: Hub, name: str) -> str:
    """Return the state of a source in words."""
    try:
        return judge_source(hub, view_source(hub, name)).text
    except UnknownSource:
        return "FORGOTTEN: run a task of it"


def view_writer(hub: Hub, found: FoundWriter) -> WriterView:
    """Return a writer as it is now."""
    running = runner(hub, found.pipeline.name)
    view = _view(hub, found, commit_log(hub, found.pipeline), running)
    return replace(view, dead_letters=count_letters(hub, found.pipeline).get(view.name, 0))


def _view(hub: Hub, found: FoundWriter, log: Topic[Any] | None, running: str | None) -> WriterView:
    registered = found.registered
    ledger = None if log is None else read_ledger(hub, found.name, log)
    progress = {} if ledger is None else ledger.progress
    stored = WriterState() if ledger is None else ledger.state
    state = shown_state(stored.state, running)
    waits = state is WriterStatus.WAITING
    lag = Amount()
    for where, held in progress.items():
        lag = lag.plus(amount_left(hub.backend.log, where, held))
    return WriterView(
        name=str(found.name),
        type=registered.type,
        namespace=registered.namespace,
        engine=registered.engine,
        on_error=registered.on_error,
        state=state,
        since=utc_time(stored.since_ms) if stored.since_ms else None,
        rows=stored.rows,
        parked=stored.parked,
        lag=lag.records,
        lag_bytes=lag.bytes,
        marks={str(where): held.mark for where, held in progress.items()},
        dead_letters=0,
        error=stored.error if waits or state is WriterStatus.FAILED else None,
        position=stored.position,
        next_try=utc_time(stored.next_try_ms) if waits else None,
        waits_for=stored.waits_for if waits else None,
    )


def with_rates(
    views: list[PipelineView], rows_before: Mapping[str, int], seconds: float
) -> list[PipelineView]:
    """Return views with rates, from the rows of each writer `seconds` before."""

    def rated(writer: WriterView) -> WriterView:
        if writer.name not in rows_before:
            return writer
        rows = writer.rows - rows_before[writer.name]
        return replace(writer, rows_per_second=rows / seconds)

    return [replace(view, writers=tuple(map(rated, view.writers))) for view in views]
