"""The preflight of a run: connect to everything, write nothing.

A sink that cannot be reached is no error: its writer waits for it, and checks it then.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tailrace.errors import ConfigError, Error
from tailrace.hub.hub import Hub
from tailrace.pipeline.definition.definition import (
    FollowedSource,
    PipelineDefinition,
    WriterDefinition,
)
from tailrace.pipeline.definition.settings import Start
from tailrace.pipeline.writing.fault import Fault, fault_without_records
from tailrace.pipeline.writing.writer_ledger import WriterName, stored_state
from tailrace.source.catalog import check_pipeline_name, find_source, source_names
from tailrace.source.preflight import check_reading, file_key
from tailrace.suggestion import did_you_mean


@dataclass(frozen=True, slots=True)
class Preflight:
    """The result of a preflight.

    `empty` is the message of a source that has nothing to read, else None. `unreachable` are the
    names of the writers whose sinks could not be reached.
    """

    empty: str | None
    unreachable: frozenset[str]


def check(definition: PipelineDefinition, hub: Hub | str, *, allow_empty: bool) -> Preflight:
    """Check the name, the reader and all writers; `ConfigError` names the file and the key that is
    wrong, and `InvalidName` is raised if a subscription or a source has the name.

    `hub` is the hub to run in, or the directory where it will be created. A source with nothing to
    read is `NothingToRead`, unless `allow_empty`: records may wait in the commit log, and data may
    arrive later.
    """
    opened = hub if isinstance(hub, Hub) else None
    if opened is not None:
        check_pipeline_name(opened.backend.store, definition.name)
    empty = None
    if isinstance(definition.reader, FollowedSource):
        _check_source(definition, definition.reader, hub)
    else:
        empty = check_reading(
            definition.name,
            definition.reader,
            opened,
            origin=definition.origin,
            allow_empty=allow_empty,
        )
    unreachable = set()
    for each in definition.writers:
        try:
            check_sink(definition, each, hub)
        except (Error, OSError) as error:
            if fault_without_records(error) is not Fault.OUTAGE:
                raise _refused(definition, f"writer.{each.name}", error) from error
            unreachable.add(each.name)
    return Preflight(empty, frozenset(unreachable))


def _check_source(definition: PipelineDefinition, source: FollowedSource, hub: Hub | str) -> None:
    """Raise `ConfigError` if the source that a pipeline follows has never run in the hub."""
    opened = hub if isinstance(hub, Hub) else None
    if opened is None or find_source(opened.backend.store, source.name) is None:
        known = [] if opened is None else source_names(opened.backend.store)
        raise ConfigError(
            f"{file_key(definition.origin, 'pipeline.source')}: source {source.name!r} has never "
            f"run in {_location(hub)}",
            did_you_mean(source.name, known),
            f"run a task of it first: {source.run_command}",
        )
    if definition.commit_log not in opened.topics():
        raise ConfigError(
            f"{file_key(definition.origin, 'pipeline.source')}: the commit log "
            f"{definition.commit_log} was deleted",
            f"a task of source {source.name!r} creates it again: {source.run_command}",
        )


def check_sink(definition: PipelineDefinition, each: WriterDefinition, hub: Hub | str) -> None:
    """Check the sink of a writer. Raises the errors of the sink.

    Raises `ConfigError` if the sink has rows of a writer of this name from another hub.
    """
    found = each.writer.check()
    if each.settings.start is not Start.AGAIN:
        _check_hub(definition, each, hub, found)


def _check_hub(
    definition: PipelineDefinition, each: WriterDefinition, hub: Hub | str, found: str
) -> None:
    """Refuse a sink that has rows of a writer of this name, none of them from this hub.

    A hub whose ledger has delivered rows is known to be the right one. If only the ledger is lost,
    the sink has rows of the hub's commit log.
    """
    name = WriterName(definition.name, each.name)
    opened = hub if isinstance(hub, Hub) else None
    if opened is not None and stored_state(opened.backend, name).rows:
        return
    logs = each.writer.applied_logs(str(name), opened)
    if not logs or _identity(opened, definition.commit_log) in logs:
        return
    raise ConfigError(
        f"the sink ({found}) has rows of {name} that are not from the hub {_location(hub)}",
        "they are from another hub or from a commit log that was deleted, and would be duplicated",
        "run the pipeline with the hub that it ran with before (--hub), or rename the pipeline",
        f'to write the rows again all the same: writer.{each.name}.start = "{Start.AGAIN}"',
    )


def _identity(hub: Hub | None, commit_log: str) -> str | None:
    """Return the identity of a commit log; None if it does not exist."""
    if hub is None or commit_log not in hub.topics():
        return None
    return hub.topic(commit_log).view.definition.identity


def _location(hub: Hub | str) -> str:
    """Return the absolute path or the URL of a hub."""
    name = hub if isinstance(hub, str) else hub.backend.name
    return name if "://" in name else os.path.abspath(name)


def _refused(definition: PipelineDefinition, key: str, error: Exception) -> ConfigError:
    return ConfigError(f"{file_key(definition.origin, key)}: {error}")
