"""The catalog of the pipelines that ran in a hub, so that commands need no definition file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection

import msgspec

from tailrace.backend.contract import Change, Store
from tailrace.errors import Conflict
from tailrace.pipeline.definition.definition import FollowedSource, PipelineDefinition
from tailrace.pipeline.definition.settings import Engine, OnError, PipelineSettings
from tailrace.pipeline.stored_writer import StoredWriter, store_writer
from tailrace.source.catalog import check_pipeline_name
from tailrace.subscription.store.shared_names import PIPELINES


class RegisteredWriter(msgspec.Struct, frozen=True):
    """A writer in the catalog. `stored` is the writer itself, if its sink may refuse a rewind."""

    type: str
    namespace: str
    functions: tuple[str, ...]
    on_error: OnError
    engine: Engine
    stored: StoredWriter | None = None


class RegisteredPipeline(msgspec.Struct, frozen=True):
    """A pipeline in the catalog, without its options, which may hold secrets.

    `reader` is the type of the reader, or the source that the pipeline follows: ``source shop``;
    `source` is the name of that source, else empty.

    `file` is the absolute path of the file that defines it; empty if it is defined in Python.
    `master` is the Spark master that its last run was given; empty if it was given none.
    """

    name: str
    commit_log: str
    dead_letters: str
    reader: str
    writers: dict[str, RegisteredWriter]
    log_bytes_max: int = PipelineSettings().log_bytes_max
    file: str = ""
    master: str = ""
    source: str = ""

    @property
    def run_command(self) -> str:
        """The command that runs the pipeline, on the master of its last run."""
        master = f" --master {shlex.quote(self.master)}" if self.master else ""
        return f"tailrace pipeline run {self._file}{master}"

    @property
    def test_command(self) -> str:
        """The command that connects to the source and the sinks."""
        return f"tailrace pipeline test {self._file}"

    @property
    def _file(self) -> str:
        return shlex.quote(self.file) if self.file else "FILE"


def hold_name(pipeline: str) -> str:
    """Return the name of the hold that the process running a pipeline acquires."""
    return f"pipeline/{pipeline}"


def register(store: Store, definition: PipelineDefinition, master: str | None = None) -> None:
    """Add a pipeline to the catalog, or update it. `master` is the Spark master of a run.

    Writers that the definition no longer has stay. `InvalidName` if a subscription or a source has
    the name of a new pipeline.
    """
    before = find(store, definition.name)
    writers = {} if before is None else dict(before.writers)
    for each in definition.writers:
        writers[each.name] = RegisteredWriter(
            type(each.writer).__name__,
            str(each.chain.namespace),
            tuple(type(function).__name__ for function in each.chain.functions),
            each.settings.on_error,
            each.engine,
            store_writer(each.writer),
        )
    reader = definition.reader
    source = reader.name if isinstance(reader, FollowedSource) else ""
    entry = RegisteredPipeline(
        definition.name,
        definition.commit_log,
        definition.dead_letters,
        f"source {source}" if source else type(reader).__name__,
        writers,
        definition.settings.log_bytes_max,
        os.path.abspath(definition.origin) if definition.origin else "",
        master or "",
        source,
    )
    if before is None:
        _add(store, entry)
    elif entry != before:
        _put(store, entry)


def forget_writer(store: Store, pipeline: RegisteredPipeline, writer: str) -> None:
    """Remove a writer from the catalog."""
    writers = {name: held for name, held in pipeline.writers.items() if name != writer}
    _put(store, msgspec.structs.replace(pipeline, writers=writers))


def unregister(store: Store, name: str, *, keeping: Collection[str]) -> None:
    """Remove all writers but those to keep; without any left, remove the pipeline."""
    pipeline = find(store, name)
    if pipeline is None:
        return
    writers = {writer: held for writer, held in pipeline.writers.items() if writer in keeping}
    if writers:
        _put(store, msgspec.structs.replace(pipeline, writers=writers))
    else:
        store.commit(Change(writes={PIPELINES + name: None}))


def find(store: Store, name: str) -> RegisteredPipeline | None:
    """Return a pipeline of the catalog; None if it never ran in this hub."""
    entry = store.get(PIPELINES + name)
    if entry is None or entry.value is None:
        return None
    return msgspec.json.decode(entry.value, type=RegisteredPipeline)


def pipelines(store: Store) -> list[RegisteredPipeline]:
    """Return all pipelines of the catalog, by name."""
    return [
        msgspec.json.decode(entry.value, type=RegisteredPipeline)
        for entry in store.scan(PIPELINES)
        if entry.value is not None
    ]


def _add(store: Store, pipeline: RegisteredPipeline) -> None:
    key, value = PIPELINES + pipeline.name, msgspec.json.encode(pipeline)
    try:
        store.commit(Change(check_pipeline_name(store, pipeline.name), {key: value}))
    except Conflict:
        check_pipeline_name(store, pipeline.name)
        raise


def _put(store: Store, pipeline: RegisteredPipeline) -> None:
    key = PIPELINES + pipeline.name
    store.commit(Change(writes={key: msgspec.json.encode(pipeline)}))
