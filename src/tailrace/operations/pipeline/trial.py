"""Testing a pipeline without running it: connect to everything, write nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tailrace.errors import ConfigError, Error
from tailrace.hub.hub import Hub
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.operations.topic.lookup import find_topic
from tailrace.operations.topic.message_view import text_of
from tailrace.pipeline.definition.definition import (
    FollowedSource,
    PipelineDefinition,
    WriterDefinition,
)
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.rows import Rows
from tailrace.source.catalog import read_source
from tailrace.source.reader import Preview

SAMPLE_ROWS: Final = 5
"""Number of rows of a followed source that are shown."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A row as a writer would receive it."""

    namespace: str
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WriterTrial:
    """A writer's check, and the reader's first rows as the writer would receive them.

    `before_sql` is True if the rows are shown before the first function `sql`, which needs Spark.
    """

    name: str
    found: str
    rows: tuple[SampleRow, ...]
    before_sql: bool


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of testing a pipeline."""

    pipeline: str
    reader: str
    rows_seen: int
    writers: tuple[WriterTrial, ...]


def try_pipeline(definition: PipelineDefinition, hub: Hub | None = None) -> Trial:
    """Connect to the source and every sink, and transform the reader's first rows.

    Those of a source that the pipeline follows are read from its commit log in the hub. Raise
    `ConfigError` with every error, by file and key.
    """
    errors: list[str] = []
    preview = Preview("", ())
    try:
        preview = _preview(definition, hub)
    except Error as error:
        followed = isinstance(definition.reader, FollowedSource)
        errors.append(f"{'pipeline.source' if followed else 'reader'}: {error}")
    trials = []
    for writer in definition.writers:
        try:
            trials.append(_try_writer(writer, preview))
        except (Error, OSError) as error:
            errors.append(f"writer.{writer.name}: {error}")
    if errors:
        origin = f"{definition.origin}: " if definition.origin else ""
        raise ConfigError(*(f"{origin}{error}" for error in errors))
    return Trial(definition.name, preview.sentence, len(preview.documents), tuple(trials))


def _preview(definition: PipelineDefinition, hub: Hub | None) -> Preview:
    """Return the first rows of a reader, or the first that a followed source has stored."""
    source = definition.reader
    if not isinstance(source, FollowedSource):
        return source.check()
    if hub is None:
        raise ConfigError(
            f"there is no hub in which source {source.name!r} has run",
            f"run a task of it first: {source.run_command}",
        )
    read_source(hub.backend, source.name)
    reads = find_topic(hub, definition.commit_log).reader().poll()
    records = [record for read in reads for record in records_of(read.records[:SAMPLE_ROWS])]
    documents = [
        (text_of(record.key or b""), msgspec.json.decode(record.value))
        for record in records[:SAMPLE_ROWS]
    ]
    return Preview(f"source {source.name}, from {definition.commit_log}", documents)


def _try_writer(definition: WriterDefinition, preview: Preview) -> WriterTrial:
    found = definition.writer.check()
    first, *rest = definition.chain.parts()
    assert isinstance(first, Chain)
    rows = first.apply(_rows(preview))
    samples = zip(rows.namespaces, rows.documents, strict=True)
    return WriterTrial(
        definition.name,
        found,
        tuple(SampleRow(namespace, document) for namespace, document in samples),
        before_sql=bool(rest),
    )


def _rows(preview: Preview) -> Rows:
    return Rows(
        from_records(
            [
                Record(
                    number,
                    0,
                    Mode.COPY,
                    Op.INSERT,
                    namespace.encode(),
                    None,
                    msgspec.json.encode(document),
                )
                for number, (namespace, document) in enumerate(preview.documents)
            ]
        )
    )
