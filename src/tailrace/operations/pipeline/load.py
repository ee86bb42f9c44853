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
    module, colon, attribute = source.rpartition(":")
    if not colon or Path(source).exists() or source.endswith(".toml"):
        return Pipeline.from_file(source)
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        raise ConfigError(
            f"{source} cannot be loaded: {type(error).__name__}: {error}",
            "valid: a file such as lake.toml, or MODULE:ATTRIBUTE",
        ) from error
    if not isinstance(found, Pipeline):
        raise ConfigError(f"{source} is a {type(found).__name__}, not a tailrace.Pipeline")
    return found
