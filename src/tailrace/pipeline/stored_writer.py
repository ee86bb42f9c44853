"""A writer in the catalog, so that an operator's command can ask its sink.

Only a writer that `may_refuse_rewind` is stored, because the options of others may hold secrets.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Final

import msgspec

from tailrace.errors import Error
from tailrace.pipeline.writer import Writer

_CREDENTIALS: Final = re.compile(r"://[^/]*@")


class StoredWriter(msgspec.Struct, frozen=True):
    """A writer: the module and the name of its class, and its options."""

    module: str
    name: str
    options: dict[str, Any]


def store_writer(writer: Writer) -> StoredWriter | None:
    """Return a writer for the catalog; None if it needs none or has a URL with credentials."""
    if not writer.may_refuse_rewind:
        return None
    kind = type(writer)
    options = msgspec.to_builtins(writer)
    if _CREDENTIALS.search(msgspec.json.encode(options).decode()):
        return None
    return StoredWriter(kind.__module__, kind.__name__, options)


def load_writer(stored: StoredWriter) -> Writer:
    """Return the writer; `Error` if its class is not installed here or has other options."""
    try:
        kind = getattr(import_module(stored.module), stored.name)
        loaded: Writer = msgspec.convert(stored.options, kind)
    except (ImportError, AttributeError, msgspec.ValidationError) as error:
        raise Error(
            f"the writer {stored.module}.{stored.name} cannot be loaded: {error}",
            "run this command with the installation that runs the pipeline",
        ) from error
    return loaded
