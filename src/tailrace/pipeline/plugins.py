"""Readers and writers by name: our own, and those of other packages by their entry points.

A package adds a reader by an entry point of the group ``tailrace.readers``, a writer by one of
``tailrace.writers``. Its module is imported when that reader or writer is asked for, and not
before, so one that is broken disturbs nobody else.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from tailrace.errors import ConfigError
from tailrace.pipeline.writer import Writer
from tailrace.source.reader import Reader

_READERS: Final = {"file": "tailrace.readers.file:FileReader"}
_WRITERS: Final = {
    "file": "tailrace.writers.file:FileWriter",
    "parquet": "tailrace.writers.parquet:ParquetWriter",
    "sql": "tailrace.writers.sql:SqlWriter",
    "topic": "tailrace.writers.topic:TopicWriter",
    "spark": "tailrace.writers.spark:SparkWriter",
}


class Kind(Enum):
    """The kinds of plug-ins: what each is called, and where its own come from."""

    READER = ("reader", "tailrace.readers", Reader, _READERS)
    WRITER = ("writer", "tailrace.writers", Writer, _WRITERS)

    def __init__(self, noun: str, group: str, base: type[Any], built_in: Mapping[str, str]) -> None:
        self.noun = noun
        self.group = group
        self.base = base
        self.built_in = built_in


@dataclass(frozen=True, slots=True)
class Plugin:
    """A reader or writer that is installed. `package` is who brings it, with the version."""

    kind: Kind
    name: str
    entry: EntryPoint

    @property
    def package(self) -> str:
        """Who brings it, such as ``acme-tailrace 1.2``."""
        dist = self.entry.dist
        return "tailrace" if dist is None else f"{dist.name} {dist.version}"

    def load(self) -> type[Any]:
        """Its class; `ConfigError` with the reason where that cannot be had."""
        about = f"{self.kind.noun} {self.name!r} of {self.package}"
        try:
            found = self.entry.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(
                f"{about} cannot be loaded: {reason}", f"it is {self.entry.value}"
            ) from error
        if not (isinstance(found, type) and issubclass(found, self.kind.base)):
            raise ConfigError(f"{about} is no {self.kind.base.__name__}: {self.entry.value}")
        return found


def plugins(kind: Kind) -> dict[str, Plugin]:
    """All of a kind by name: our own first, then those of other packages. Imports none of them."""
    found: dict[str, Plugin] = {}
    for name, value in kind.built_in.items():
        found[name] = Plugin(kind, name, EntryPoint(name, value, kind.group))
    others = (Plugin(kind, entry.name, entry) for entry in entry_points(group=kind.group))
    for plugin in sorted(others, key=lambda plugin: (plugin.name, plugin.package)):
        found.setdefault(plugin.name, plugin)
    return found


def plugin(kind: Kind, name: str) -> Plugin:
    """One of a kind; `ConfigError` with the nearest name and the list where there is none."""
    known = plugins(kind)
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1)
        raise ConfigError(
            f"no {kind.noun} {name!r}",
            f"did you mean {near[0]!r}?" if near else "",
            f"there are: {', '.join(known)}",
            f"packages add more by the entry point group {kind.group}",
        )
    return known[name]


def readers() -> list[str]:
    """The names of all readers."""
    return list(plugins(Kind.READER))


def writers() -> list[str]:
    """The names of all writers."""
    return list(plugins(Kind.WRITER))


def reader(name: str) -> type[Reader]:
    """The reader of that name; `ConfigError` where there is none, or it cannot be loaded."""
    return plugin(Kind.READER, name).load()


def writer(name: str) -> type[Writer]:
    """The writer of that name; `ConfigError` where there is none, or it cannot be loaded."""
    return plugin(Kind.WRITER, name).load()
