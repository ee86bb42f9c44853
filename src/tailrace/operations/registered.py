"""Finding pipelines and writers by name: those that were run in a hub."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from tailrace.errors import InvalidValue
from tailrace.hub import Hub
from tailrace.operations.topics import find_topic
from tailrace.pipeline.books import Books, WriterName
from tailrace.pipeline.registry import (
    RegisteredPipeline,
    RegisteredWriter,
    find,
    hold_name,
    pipelines,
)
from tailrace.topic.topic import Topic


@dataclass(frozen=True, slots=True)
class FoundWriter:
    """A writer that is registered in a hub, and its pipeline."""

    name: WriterName
    pipeline: RegisteredPipeline
    registered: RegisteredWriter


def find_pipeline(hub: Hub, name: str) -> RegisteredPipeline:
    """A pipeline that was run in this hub; `InvalidValue` with those that were, and the nearest."""
    found = find(hub.backend.store, name)
    if found is None:
        known = [each.name for each in pipelines(hub.backend.store)]
        raise _unknown("pipeline", name, known, "run it once: tailrace pipeline run FILE")
    return found


def find_writer(hub: Hub, text: str) -> FoundWriter:
    """A writer by its full name, ``lake/crm``; `InvalidValue` with those there are."""
    name = WriterName.parse(text)
    pipeline = find(hub.backend.store, name.pipeline)
    if pipeline is None or name.writer not in pipeline.writers:
        raise _unknown("writer", text, writer_names(hub), "see them: tailrace pipeline status")
    return FoundWriter(name, pipeline, pipeline.writers[name.writer])


def writer_names(hub: Hub) -> list[str]:
    """The full names of all writers that were run in this hub."""
    known = pipelines(hub.backend.store)
    return [f"{pipeline.name}/{writer}" for pipeline in known for writer in pipeline.writers]


def _unknown(what: str, name: str, known: list[str], remedy: str) -> InvalidValue:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else remedy
    return InvalidValue(what, name, ", ".join(known) or f"none: no {what} was run here", hint)


def runner(hub: Hub, pipeline: str) -> str | None:
    """Who runs a pipeline now: the process and its host."""
    return hub.backend.holder(hold_name(pipeline))


def commit_log(hub: Hub, pipeline: RegisteredPipeline) -> Topic[Any] | None:
    """The commit log of a pipeline; None where somebody has deleted it."""
    return _topic(hub, pipeline.commit_log)


def dead_letter_topic(hub: Hub, pipeline: RegisteredPipeline) -> Topic[Any] | None:
    """The dead letters of a pipeline; None where somebody has deleted them."""
    return _topic(hub, pipeline.dead_letters)


def _topic(hub: Hub, name: str) -> Topic[Any] | None:
    return find_topic(hub, name) if name in hub.topics() else None


def read_books(hub: Hub, name: WriterName, log: Topic[Any]) -> Books:
    """The books of a writer as they are now, not taken."""
    books = Books(hub.backend, name, log.view)
    books.read()
    return books
