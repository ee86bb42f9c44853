"""The sources of a hub, so that commands need no definition file."""

from __future__ import annotations

import os
import shlex

import msgspec

from tailrace.backend.contract import Backend, Change, Store
from tailrace.errors import Conflict, InvalidName, UnknownSource
from tailrace.subscription.store.shared_names import SOURCES, check_unused, unused_by_others


class SourceEntry(msgspec.Struct, frozen=True):
    """A source in the catalog, without the options of its reader, which may hold secrets.

    `file` is the absolute path of the file that defines it; empty if it is defined in Python.
    `of_pipeline` is True for the source of a pipeline, which has its name.
    """

    commit_log: str
    dead_letters: str
    reader: str
    created_ms: int
    file: str = ""
    of_pipeline: bool = False

    @property
    def run_command(self) -> str:
        """The command that runs a task of the source."""
        return run_command(self.file)


def run_command(file: str) -> str:
    """Return the command that runs a task of the source of a file; empty if it has none."""
    return f"tailrace source run {shlex.quote(file) if file else 'FILE'}"


_decode = msgspec.json.Decoder(SourceEntry).decode


def register_source(store: Store, name: str, entry: SourceEntry) -> None:
    """Add a source to the catalog, or update it. `InvalidName` if something else has the name."""
    key, before = SOURCES + name, check_source_name(store, name, of_pipeline=entry.of_pipeline)
    if before is None:
        sharing = ("pipeline",) if entry.of_pipeline else ()
        try:
            expect = unused_by_others("source", name, *sharing)
            store.commit(Change(expect, {key: msgspec.json.encode(entry)}))
        except Conflict:
            check_unused(store, "source", name, *sharing)
            raise
        return
    if entry != msgspec.structs.replace(before, created_ms=entry.created_ms):
        entry = msgspec.structs.replace(entry, created_ms=before.created_ms)
        store.commit(Change(writes={key: msgspec.json.encode(entry)}))


def check_source_name(store: Store, name: str, *, of_pipeline: bool) -> SourceEntry | None:
    """Raise `InvalidName` if something else has the name of a source. Return the source, if it is
    in the catalog."""
    before = find_source(store, name)
    if before is None:
        check_unused(store, "source", name, *(("pipeline",) if of_pipeline else ()))
    elif before.of_pipeline != of_pipeline:
        kind = "pipeline" if before.of_pipeline else "source"
        valid = f"a name that nothing else in the hub has: there is a {kind} {name!r}"
        raise InvalidName("source", name, valid)
    return before


def find_source(store: Store, name: str) -> SourceEntry | None:
    """Return a source of the catalog; None if it never ran in this hub."""
    stored = store.get(SOURCES + name)
    return None if stored is None or stored.value is None else _decode(stored.value)


def check_pipeline_name(store: Store, name: str) -> dict[str, int]:
    """Raise `InvalidName` if something else has the name of a pipeline. Return what the change that
    creates the pipeline expects."""
    stored = store.get(SOURCES + name)
    own = stored is not None and stored.value is not None and _decode(stored.value).of_pipeline
    check_unused(store, "pipeline", name, *(("source",) if own else ()))
    version = 0 if stored is None else stored.version
    return {**unused_by_others("pipeline", name), SOURCES + name: version}


def source_names(store: Store) -> list[str]:
    """Return the names of all sources, sorted."""
    return [entry.key.removeprefix(SOURCES) for entry in store.scan(SOURCES)]


def read_source(backend: Backend, name: str) -> SourceEntry:
    """Return a source of the catalog. Raises `UnknownSource`."""
    found = find_source(backend.store, name)
    if found is None:
        raise UnknownSource(name, backend.name, source_names(backend.store))
    return found


def absolute(origin: str) -> str:
    """Return the absolute path of a file that defines a source; empty if none does."""
    return os.path.abspath(origin) if origin else ""
