"""Testing a source without running it: connect, write nothing."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.errors import ConfigError, Error, InvalidName
from tailrace.hub.hub import Hub
from tailrace.operations.pipeline.trial import SampleRow
from tailrace.source.catalog import check_source_name
from tailrace.source.preflight import file_key
from tailrace.source.source import Source


@dataclass(frozen=True, slots=True)
class SourceTrial:
    """The result of testing a source: what its reader found, and its first rows."""

    source: str
    reader: str
    rows: tuple[SampleRow, ...]


def try_source(source: Source, hub: Hub | None = None) -> SourceTrial:
    """Connect to a source, check every setting, and read its first rows. Raise `ConfigError` with
    the file and the key. `hub` is that in which the source is to run, if it exists."""
    try:
        if hub is not None:
            check_source_name(hub.backend.store, source.name, of_pipeline=source.of_pipeline)
    except InvalidName as error:
        raise ConfigError(f"{file_key(source.origin, 'source.name')}: {error}") from error
    try:
        if hub is not None:
            source.reader.check_hub(hub, (source.commit_log, source.dead_letters))
        preview = source.check()
    except (Error, OSError) as error:
        raise ConfigError(f"{file_key(source.origin, 'reader')}: {error}") from error
    rows = tuple(SampleRow(namespace, document) for namespace, document in preview.documents)
    return SourceTrial(source.name, preview.sentence, rows)
