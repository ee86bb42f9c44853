"""Trying a pipeline without running it: everything is connected to, and nothing written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tailrace.errors import ConfigError, Error
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.pipeline.chain import Chain
from tailrace.pipeline.definition import PipelineDefinition, WriterDefinition
from tailrace.pipeline.rows import Rows
from tailrace.source.reader import Preview


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A row as a writer would get it."""

    namespace: str
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WriterTrial:
    """What a writer found, and the reader's first rows as it would get them.

    With `before_sql` they are shown as they come to its first function `sql`, which needs Spark.
    """

    name: str
    found: str
    rows: tuple[SampleRow, ...]
    before_sql: bool


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of trying a pipeline."""

    pipeline: str
    reader: str
    rows_seen: int
    writers: tuple[WriterTrial, ...]


def try_pipeline(definition: PipelineDefinition) -> Trial:
    """Connect to everything, and transform the reader's first rows.

    `ConfigError` names all that is wrong, by file and key.
    """
    troubles: list[str] = []
    preview = Preview("", ())
    try:
        preview = definition.reader.check()
    except Error as error:
        troubles.append(f"reader: {error}")
    trials = []
    for writer in definition.writers:
        try:
            trials.append(_try_writer(writer, preview))
        except Error as error:
            troubles.append(f"writer.{writer.name}: {error}")
    if troubles:
        origin = f"{definition.origin}: " if definition.origin else ""
        raise ConfigError(*(f"{origin}{trouble}" for trouble in troubles))
    return Trial(definition.name, preview.sentence, len(preview.documents), tuple(trials))


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
