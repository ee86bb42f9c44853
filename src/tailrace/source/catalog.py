"""The sources of a hub, so that commands need no definition file."""

from __future__ import annotations

import os
import shlex

import msgspec

from tailrace.backend.contract import Backend, Change, Store
from tailrace.errors import UnknownSource
from tailrace.source.names import SOURCES


class SourceEntry(msgspec.Struct, frozen=True):
    """A source in the catalog, without the options of its reader, which may hold secrets.

    `file` is the absolute path of the file that defines it; empty if it is defined in Python.
    """

    commit_log: str
    dead_letters: str
    reader: str
    created_ms: int
    file: str = ""

    @property
    def run_command(self) -> str:
        """The command that runs a task of the source."""
        return f"tailrace source run {shlex.quote(self.file) if self.file else 'FILE'}"


_decode = msgspec.json.Decoder(SourceEntry).decode


def register_source(store: Store, name: str, entry: SourceEntry) -> None:
    """Add a source to the catalog, or update it."""
    stored = store.get(SOURCES + name)
    if stored is not None and stored.value is not None:
        before = _decode(stored.value)
        if entry == msgspec.structs.replace(before, created_ms=entry.created_ms):
            return
        entry = msgspec.structs.replace(entry, created_ms=before.created_ms)
    store.commit(Change(writes={SOURCES + name: msgspec.json.encode(entry)}))


def source_names(store: Store) -> list[str]:
    """Return the names of all sources, sorted."""
    return [entry.key.removeprefix(SOURCES) for entry in store.scan(SOURCES)]


def read_source(backend: Backend, name: str) -> SourceEntry:
    """Return a source of the catalog. Raises `UnknownSource`."""
    stored = backend.store.get(SOURCES + name)
    if stored is None or stored.value is None:
        raise UnknownSource(name, backend.name, source_names(backend.store))
    return _decode(stored.value)


def absolute(origin: str) -> str:
    """Return the absolute path of a file that defines a source; empty if none does."""
    return os.path.abspath(origin) if origin else ""
