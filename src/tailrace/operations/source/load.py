"""Loading the definition of a source from a file or a module."""

from __future__ import annotations

from tailrace.errors import ConfigError
from tailrace.operations.pipeline.load import load_attribute
from tailrace.pipeline.pipeline import Pipeline
from tailrace.source.source import Source


def load_source_definition(text: str) -> Source:
    """Load a source from a TOML file or a module: ``shop.toml``, ``shop:source``.

    That of a pipeline which many tasks read is loaded from the definition of the pipeline. Raise
    `ConfigError` if there is none. Nothing is opened.
    """
    found = load_attribute(text)
    if found is None:
        return Source.from_file(text)
    if isinstance(found, Pipeline):
        return found.source
    if not isinstance(found, Source):
        raise ConfigError(f"{text} is a {type(found).__name__}, not a tailrace.Source")
    return found
