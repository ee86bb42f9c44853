"""What a hub says of its pipelines, so that operators' commands need no definition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from tailrace.backend.contract import Change, Store
from tailrace.pipeline.definition import LOG_BYTES_MAX, Engine, OnError, PipelineDefinition

PIPELINES: Final = "pipeline/"


class RegisteredWriter(msgspec.Struct, frozen=True):
    """What the hub says of a writer."""

    type: str
    namespace: str
    functions: tuple[str, ...]
    on_error: OnError
    engine: Engine


class RegisteredPipeline(msgspec.Struct, frozen=True):
    """What the hub says of a pipeline. No options: they may hold secrets."""

    name: str
    commit_log: str
    dead_letters: str
    reader: str
    writers: dict[str, RegisteredWriter]
    log_bytes_max: int = LOG_BYTES_MAX


def hold_name(pipeline: str) -> str:
    """The name that whoever runs a pipeline holds."""
    return f"pipeline/{pipeline}"


def register(store: Store, definition: PipelineDefinition) -> None:
    """Store what a definition says. Writers that it no longer has stay until they are forgotten."""
    before = find(store, definition.name)
    writers = {} if before is None else dict(before.writers)
    for each in definition.writers:
        writers[each.name] = RegisteredWriter(
            type(each.writer).__name__,
            str(each.chain.namespace),
            tuple(type(function).__name__ for function in each.chain.functions),
            each.on_error,
            each.engine,
        )
    entry = RegisteredPipeline(
        definition.name,
        definition.commit_log,
        definition.dead_letters,
        type(definition.reader).__name__,
        writers,
        definition.log_bytes_max,
    )
    if entry != before:
        _put(store, entry)


def forget_writer(store: Store, pipeline: RegisteredPipeline, writer: str) -> None:
    """Remove a writer from what is registered."""
    writers = {name: held for name, held in pipeline.writers.items() if name != writer}
    _put(store, msgspec.structs.replace(pipeline, writers=writers))


def unregister(store: Store, name: str, *, keeping: Collection[str]) -> None:
    """Remove writers that never began; without any left, the pipeline itself."""
    pipeline = find(store, name)
    if pipeline is None:
        return
    writers = {writer: held for writer, held in pipeline.writers.items() if writer in keeping}
    if writers:
        _put(store, msgspec.structs.replace(pipeline, writers=writers))
    else:
        store.commit(Change(writes={PIPELINES + name: None}))


def find(store: Store, name: str) -> RegisteredPipeline | None:
    """A pipeline that was run in this hub, or None."""
    entry = store.get(PIPELINES + name)
    if entry is None or entry.value is None:
        return None
    return msgspec.json.decode(entry.value, type=RegisteredPipeline)


def pipelines(store: Store) -> list[RegisteredPipeline]:
    """All pipelines that were run in this hub, by name."""
    return [
        msgspec.json.decode(entry.value, type=RegisteredPipeline)
        for entry in store.scan(PIPELINES)
        if entry.value is not None
    ]


def _put(store: Store, pipeline: RegisteredPipeline) -> None:
    key = PIPELINES + pipeline.name
    store.commit(Change(writes={key: msgspec.json.encode(pipeline)}))
