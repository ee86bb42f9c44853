"""Finding sources by name."""

from __future__ import annotations

from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.pipeline.catalog import find
from tailrace.source.catalog import SourceEntry, find_source, read_source, source_names


def find_entry(hub: Hub, name: str) -> SourceEntry:
    """Return a source that has run in this hub. Raise `UnknownSource`, or `InvalidValue` for the
    name of a pipeline without a source that tasks read."""
    store = hub.backend.store
    pipeline = find(store, name)
    if pipeline is None or find_source(store, name) is not None:
        return read_source(hub.backend, name)
    reads = f"follows source {pipeline.source!r}" if pipeline.source else "reads by itself"
    known = ", ".join(source_names(store))
    remedy = f"show it: tailrace pipeline status {name}"
    raise InvalidValue("source", name, known, remedy, f"{name!r} is a pipeline, which {reads}")
