"""Finding the pipelines and writers that were run in a hub, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.operations.topic.lookup import find_topic
from tailrace.pipeline.catalog import (
    RegisteredPipeline,
    RegisteredWriter,
    find,
    hold_name,
    pipelines,
)
from tailrace.pipeline.writing.writer_ledger import WriterLedger, WriterName
from tailrace.suggestion import did_you_mean


@dataclass(frozen=True, slots=True)
class FoundWriter:
    """A writer that is registered in a hub, and its pipeline."""

    name: WriterName
    pipeline: RegisteredPipeline
    registered: RegisteredWriter


def find_pipeline(hub: Hub, name: str) -> RegisteredPipeline:
    """Return a pipeline that was run in this hub. Raise `InvalidValue` for an unknown name."""
    found = find(hub.backend.store, name)
    if found is None:
        known = [each.name for each in pipelines(hub.backend.store)]
        raise _unknown(hub, "pipeline", name, known)
    return found


def find_writer(hub: Hub, text: str) -> FoundWriter:
    """Return a writer by its full name, ``lake/crm``. Raise `InvalidValue` if it is unknown."""
    name = WriterName.parse(text)
    pipeline = find(hub.backend.store, name.pipeline)
    if pipeline is None or name.writer not in pipeline.writers:
        raise _unknown(hub, "writer", text, writer_names(hub))
    return FoundWriter(name, pipeline, pipeline.writers[name.writer])


def writer_names(hub: Hub) -> list[str]:
    """Return the full names of the writers that were run in this hub."""
    known = pipelines(hub.backend.store)
    return [f"{pipeline.name}/{writer}" for pipeline in known for writer in pipeline.writers]


def _unknown(hub: Hub, what: str, name: str, known: list[str]) -> InvalidValue:
    listing = "list them: tailrace pipeline status"
    running = f"no {what} was run here; run a pipeline: tailrace pipeline run FILE"
    remedy = did_you_mean(name, known) or (listing if known else running)
    problem = f"no {what} {name!r} in {hub.backend.name}"
    return InvalidValue(what, name, ", ".join(known), remedy, problem)


def runner(hub: Hub, pipeline: str) -> str | None:
    """Return the process and host that run a pipeline now, or None."""
    return hub.backend.holder(hold_name(pipeline))


def commit_log(hub: Hub, pipeline: RegisteredPipeline) -> Topic[Any] | None:
    """Return the commit log of a pipeline, or None if it was deleted."""
    return _topic(hub, pipeline.commit_log)


def dead_letter_topic(hub: Hub, pipeline: RegisteredPipeline) -> Topic[Any] | None:
    """Return the dead letter topic of a pipeline, or None if it was deleted."""
    return _topic(hub, pipeline.dead_letters)


def _topic(hub: Hub, name: str) -> Topic[Any] | None:
    return find_topic(hub, name) if name in hub.topics() else None


def read_ledger(hub: Hub, name: WriterName, log: Topic[Any]) -> WriterLedger:
    """Return the ledger of a writer as it is now. It cannot be committed."""
    ledger = WriterLedger(hub.backend, name, log.view)
    ledger.read()
    return ledger
