"""The preflight of a run: everything is connected to, and nothing written."""

from __future__ import annotations

import os

from tailrace.errors import ConfigError, Error, NothingToRead
from tailrace.hub import Hub
from tailrace.pipeline.books import WriterName, stored_state
from tailrace.pipeline.definition import PipelineDefinition, Start, WriterDefinition


def check(definition: PipelineDefinition, hub: Hub | str) -> str | None:
    """Check the reader and all writers; `ConfigError` names the file and the key of what is wrong.

    `hub` is the one to run in, or where it will be made. A source with nothing to read yet is no
    reason not to run, for rows may wait in the commit log, and others may come: what it says is
    returned.
    """
    empty = None
    try:
        definition.reader.check()
    except NothingToRead as nothing:
        empty = f"reader: {nothing}"
    except Error as error:
        raise _refused(definition, "reader", error) from error
    for each in definition.writers:
        try:
            found = each.writer.check()
            if each.start is not Start.AGAIN:
                _check_sink(definition, each, hub, found)
        except Error as error:
            raise _refused(definition, f"writer.{each.name}", error) from error
    return empty


def _check_sink(
    definition: PipelineDefinition, each: WriterDefinition, hub: Hub | str, found: str
) -> None:
    """Refuse a sink that has rows of a writer of this name, where none are of this hub.

    Once the hub has delivered something, it knows; and where only its ledger is lost, the sink has
    rows of its commit log.
    """
    name = WriterName(definition.name, each.name)
    opened = hub if isinstance(hub, Hub) else None
    if opened is not None and stored_state(opened.backend, name).rows:
        return
    logs = each.writer.applied_logs(str(name), opened)
    if not logs or _identity(opened, definition.commit_log) in logs:
        return
    raise ConfigError(
        f"{found}, and has rows of {name} that are not of the hub {_place(hub)}",
        "they are of another hub, or of a commit log that was deleted, and would be there twice",
        "run the pipeline with the hub that it ran with (--hub), or give it another name",
        f'to write them again all the same: writer.{each.name}.start = "{Start.AGAIN}"',
    )


def _identity(hub: Hub | None, commit_log: str) -> str | None:
    """The identity of a commit log that is there."""
    if hub is None or commit_log not in hub.topics():
        return None
    return hub.topic(commit_log).view.definition.identity


def _place(hub: Hub | str) -> str:
    """Where a hub is, from wherever one looks."""
    name = hub if isinstance(hub, str) else hub.backend.name
    return name if "://" in name else os.path.abspath(name)


def _refused(definition: PipelineDefinition, key: str, error: Error) -> ConfigError:
    origin = f"{definition.origin}: " if definition.origin else ""
    return ConfigError(f"{origin}{key}: {error}")
