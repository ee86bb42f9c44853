"""Loading the definition of a pipeline from a file or a module."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

from tailrace.errors import ConfigError
from tailrace.pipeline.pipeline import Pipeline


def load_definition(source: str) -> Pipeline:
    """Load a pipeline from a TOML file or a module: ``lake.toml``, ``lake:pipeline``.

    Raise `ConfigError` if there is none. Nothing is opened.
    """
    found = load_attribute(source)
    if found is None:
        return Pipeline.from_file(source)
    if not isinstance(found, Pipeline):
        raise ConfigError(f"{source} is a {type(found).__name__}, not a tailrace.Pipeline")
    return found


def load_attribute(source: str) -> object | None:
    """Return the attribute that ``MODULE:ATTRIBUTE`` names; None if the text names a file.

    Raise `ConfigError` if it cannot be imported.
    """
    module, colon, attribute = source.rpartition(":")
    if not colon or Path(source).exists() or source.endswith(".toml"):
        return None
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found: object = getattr(import_module(module), attribute)
    except Exception as error:
        raise ConfigError(
            f"{source} cannot be loaded: {type(error).__name__}: {error}",
            "valid: a file such as lake.toml, or MODULE:ATTRIBUTE",
        ) from error
    return found
