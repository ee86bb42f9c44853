"""Readers and writers by name: the built-in ones and those of other packages.

A package adds a reader by an entry point of the group ``tailrace.readers`` and a writer by one of
``tailrace.writers``. The module of a plug-in is imported when the plug-in is first used, so a
broken plug-in does not affect the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from tailrace.errors import ConfigError
from tailrace.pipeline.writer import Writer
from tailrace.source.reader import Reader
from tailrace.suggestion import did_you_mean

_READERS: Final = {
    "file": "tailrace.readers.file.reader:FileReader",
    "topic": "tailrace.readers.topic.reader:TopicReader",
}
"""The built-in readers: module and class, by the name that users write."""

_WRITERS: Final = {
    "file": "tailrace.writers.files.json_lines:FileWriter",
    "parquet": "tailrace.writers.files.parquet:ParquetWriter",
    "sql": "tailrace.writers.sql.writer:SqlWriter",
    "topic": "tailrace.writers.topic.writer:TopicWriter",
    "spark": "tailrace.writers.spark:SparkWriter",
}
"""The built-in writers: module and class, by the name that users write."""


class PluginKind(Enum):
    """The kinds of plug-ins: entry point group, base class and built-in plug-ins."""

    READER = ("reader", "tailrace.readers", Reader, _READERS)
    WRITER = ("writer", "tailrace.writers", Writer, _WRITERS)

    def __init__(self, noun: str, group: str, base: type[Any], built_in: Mapping[str, str]) -> None:
        self.noun = noun
        self.group = group
        self.base = base
        self.built_in = built_in


@dataclass(frozen=True, slots=True)
class Plugin:
    """An installed reader or writer."""

    kind: PluginKind
    name: str
    entry: EntryPoint

    @property
    def package(self) -> str:
        """The package that provides it and its version, such as ``acme-tailrace 1.2``."""
        dist = self.entry.dist
        return "tailrace" if dist is None else f"{dist.name} {dist.version}"

    def load(self) -> type[Any]:
        """Return its class; `ConfigError` with the reason if the class cannot be loaded."""
        about = f"{self.kind.noun} {self.name!r} of {self.package}"
        try:
            found = self.entry.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(
                f"{about} cannot be loaded: {reason}", f"entry point: {self.entry.value}"
            ) from error
        if not (isinstance(found, type) and issubclass(found, self.kind.base)):
            raise ConfigError(f"{about} is not a {self.kind.base.__name__}: {self.entry.value}")
        return found


def plugins(kind: PluginKind) -> dict[str, Plugin]:
    """Return all plug-ins of a kind by name, built-in ones first. Imports none of them."""
    found: dict[str, Plugin] = {}
    for name, value in kind.built_in.items():
        found[name] = Plugin(kind, name, EntryPoint(name, value, kind.group))
    others = (Plugin(kind, entry.name, entry) for entry in entry_points(group=kind.group))
    for plugin in sorted(others, key=lambda plugin: (plugin.name, plugin.package)):
        found.setdefault(plugin.name, plugin)
    return found


def plugin(kind: PluginKind, name: str) -> Plugin:
    """Return a plug-in; `ConfigError` with the nearest name and the list if there is none."""
    known = plugins(kind)
    if name not in known:
        raise ConfigError(
            f"no {kind.noun} {name!r}",
            did_you_mean(str(name), known),
            f"valid: {', '.join(known)}",
            f"packages add more by the entry point group {kind.group}",
        )
    return known[name]


def readers() -> list[str]:
    """Return the names of all readers."""
    return list(plugins(PluginKind.READER))


def writers() -> list[str]:
    """Return the names of all writers."""
    return list(plugins(PluginKind.WRITER))


def reader(name: str) -> type[Reader]:
    """Return the reader of a name; `ConfigError` if there is none or it cannot be loaded."""
    return plugin(PluginKind.READER, name).load()


def writer(name: str) -> type[Writer]:
    """Return the writer of a name; `ConfigError` if there is none or it cannot be loaded."""
    return plugin(PluginKind.WRITER, name).load()
