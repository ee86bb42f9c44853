"""The pipelines of a hub as people look at them: what each writer does, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tailrace.hub import Hub
from tailrace.operations.letters import count_letters
from tailrace.operations.records_between import Amount, amount_left
from tailrace.operations.registered import (
    FoundWriter,
    commit_log,
    find_pipeline,
    read_books,
    runner,
)
from tailrace.pipeline.books import State, WriterName, WriterState
from tailrace.pipeline.reader_failure import find_failure
from tailrace.pipeline.registry import RegisteredPipeline, pipelines
from tailrace.topic.topic import Topic


@dataclass(frozen=True, slots=True)
class WriterView:
    """A writer. `rows` were delivered since it was first started; `behind` records wait for it,
    of about `behind_bytes`.

    `marks` has, for each partition of the commit log, the first offset that is not acknowledged.
    `position` and `error` say where and why it failed. `rows_per_second` is known only while
    somebody watches.
    """

    name: str
    type: str
    namespace: str
    engine: str
    on_error: str
    state: State
    since: datetime | None
    rows: int
    parked: int
    behind: int
    behind_bytes: int
    marks: dict[str, int]
    dead_letters: int
    error: str | None
    position: str | None
    rows_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class PipelineView:
    """A pipeline. `running` says who runs it now, if somebody does; `unreadable` counts dead
    letters of its reader; `slowest` is the writer that most records wait for, if any do, and
    `reader_held` that its reader waits for that one: more than `log_bytes_max` is before it.
    `reader_failed` is when its reader failed, and `reader_error` why, until it reads again."""

    name: str
    reader: str
    commit_log: str
    running: str | None
    reader_failed: datetime | None
    reader_error: str | None
    unreadable: int
    slowest: str | None
    reader_held: bool
    writers: tuple[WriterView, ...]


def shown_state(state: State, running: str | None) -> State:
    """What a writer does, from what is stored: while nobody runs it, it has failed or is
    stopped."""
    return state if running is not None or state is State.FAILED else State.STOPPED


def view_pipelines(hub: Hub, name: str | None = None) -> list[PipelineView]:
    """All pipelines of a hub, or the one of that name."""
    chosen = pipelines(hub.backend.store) if name is None else [find_pipeline(hub, name)]
    return [view_pipeline(hub, each) for each in chosen]


def view_pipeline(hub: Hub, pipeline: RegisteredPipeline) -> PipelineView:
    """One pipeline as it is now."""
    running = runner(hub, pipeline.name)
    log = commit_log(hub, pipeline)
    letters = count_letters(hub, pipeline)
    writers = tuple(
        _view(hub, FoundWriter(WriterName(pipeline.name, name), pipeline, held), log, running)
        for name, held in pipeline.writers.items()
    )
    writers = tuple(replace(each, dead_letters=letters.get(each.name, 0)) for each in writers)
    slowest = max(writers, key=lambda writer: writer.behind, default=None)
    failure = find_failure(hub.backend, pipeline.name)
    held_bytes = 0 if slowest is None or running is None else slowest.behind_bytes
    return PipelineView(
        name=pipeline.name,
        reader=pipeline.reader,
        commit_log=pipeline.commit_log,
        running=running,
        reader_failed=None if failure is None else _moment(failure.since_ms),
        reader_error=None if failure is None else failure.error,
        unreadable=letters.get(pipeline.name, 0),
        slowest=slowest.name if slowest is not None and slowest.behind else None,
        reader_held=held_bytes > pipeline.log_bytes_max,
        writers=writers,
    )


def view_writer(hub: Hub, found: FoundWriter) -> WriterView:
    """One writer as it is now."""
    running = runner(hub, found.pipeline.name)
    view = _view(hub, found, commit_log(hub, found.pipeline), running)
    return replace(view, dead_letters=count_letters(hub, found.pipeline).get(view.name, 0))


def _view(hub: Hub, found: FoundWriter, log: Topic[Any] | None, running: str | None) -> WriterView:
    registered = found.registered
    books = None if log is None else read_books(hub, found.name, log)
    progress = {} if books is None else books.progress
    stored = WriterState() if books is None else books.state
    behind = Amount()
    for where, held in progress.items():
        behind = behind.plus(amount_left(hub.backend.log, where, held))
    return WriterView(
        name=str(found.name),
        type=registered.type,
        namespace=registered.namespace,
        engine=registered.engine,
        on_error=registered.on_error,
        state=shown_state(stored.state, running),
        since=_moment(stored.since_ms) if stored.since_ms else None,
        rows=stored.rows,
        parked=stored.parked,
        behind=behind.records,
        behind_bytes=behind.bytes,
        marks={str(where): held.mark for where, held in progress.items()},
        dead_letters=0,
        error=stored.error,
        position=stored.position,
    )


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def with_rates(
    views: list[PipelineView], rows_before: Mapping[str, int], seconds: float
) -> list[PipelineView]:
    """The same with the rates of their writers, from what each had delivered so long ago."""

    def rated(writer: WriterView) -> WriterView:
        if writer.name not in rows_before:
            return writer
        rows = writer.rows - rows_before[writer.name]
        return replace(writer, rows_per_second=rows / seconds)

    return [replace(view, writers=tuple(map(rated, view.writers))) for view in views]
