"""The preflight of a run: everything is connected to, and nothing written."""

from __future__ import annotations

from tailrace.errors import ConfigError, Error, NothingToRead
from tailrace.pipeline.definition import PipelineDefinition


def check(definition: PipelineDefinition) -> str | None:
    """Check the reader and all writers; `ConfigError` names the file and the key of what is wrong.

    A source with nothing to read yet is no reason not to run, for rows may wait in the commit log,
    and others may come: what it says is returned.
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
            each.writer.check()
        except Error as error:
            raise _refused(definition, f"writer.{each.name}", error) from error
    return empty


def _refused(definition: PipelineDefinition, key: str, error: Error) -> ConfigError:
    origin = f"{definition.origin}: " if definition.origin else ""
    return ConfigError(f"{origin}{key}: {error}")
