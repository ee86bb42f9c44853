"""The installed readers and writers, their options, and a sample of each in TOML."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from msgspec.inspect import (
    BoolType,
    EnumType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    TimeDeltaType,
    Type,
    UnionType,
    VarTupleType,
)

from tailrace.errors import ConfigError
from tailrace.operations.pipeline.toml_text import toml_value
from tailrace.pipeline.definition.options import PluginOption, options_of
from tailrace.pipeline.definition.plugins import Plugin, PluginKind, plugin, plugins
from tailrace.size import format_size

_COLUMNS: Final = 98
_EMPTY: Final[tuple[object, ...]] = (None, "", (), [], {})
_PLACEHOLDERS: Final[dict[type[Type], object]] = {
    StrType: "…",
    IntType: 1,
    FloatType: 1.0,
    BoolType: True,
    TimeDeltaType: timedelta(seconds=1),
    ListType: [],
    VarTupleType: [],
}


@dataclass(frozen=True, slots=True)
class PluginSummary:
    """A reader or writer in a list. `summary` is the error if it cannot be loaded."""

    name: str
    summary: str
    package: str
    loads: bool


@dataclass(frozen=True, slots=True)
class OptionDetail:
    """An option, its values written as in TOML. A required option has no default."""

    name: str
    type: str
    required: bool
    default: str | None
    meaning: str
    example: str | None


@dataclass(frozen=True, slots=True)
class PluginDetail:
    """A reader or writer with its options and a sample of its table."""

    name: str
    package: str
    description: str
    options: list[OptionDetail]
    sample: str


def list_plugins(noun: str) -> list[PluginSummary]:
    """Return every reader, or every writer, including those that cannot be loaded."""
    return [_summary(found) for found in plugins(_kind(noun)).values()]


def show_plugin(noun: str, name: str) -> PluginDetail:
    """Return a reader or writer. Raise `ConfigError` if it is unknown or cannot be loaded."""
    found = plugin(_kind(noun), name)
    loaded = found.load()
    return PluginDetail(
        name=found.name,
        package=found.package,
        description=inspect.getdoc(loaded) or "",
        options=[_detail(option) for option in options_of(loaded)],
        sample=sample(noun, name),
    )


def sample(noun: str, name: str, table: str | None = None) -> str:
    """Return the table of a reader or writer in a file, optional keys commented out."""
    found = plugin(_kind(noun), name)
    heading = table or ("reader" if found.kind is PluginKind.READER else f"writer.{name}")
    lines = [f"[{heading}]", f"type = {toml_value(name)}"]
    for option in options_of(found.load()):
        lines += sample_lines(option)
    return "\n".join(lines)


def sample_lines(option: PluginOption) -> list[str]:
    """Return the lines of an option in a file: a comment, and the key with a value."""
    hint = " file:PATH stands for the content of a file." if option.is_secret else ""
    comment = wrapped(f"{option.meaning or option.kind}{hint}")
    value = option.default if option.default not in _EMPTY else option.example
    if option.is_size and isinstance(value, int):
        value = format_size(value)
    shown = toml_value(_placeholder(option.type) if value is None else value)
    return [*comment, f"{'' if option.in_sample else '#'}{option.name} = {shown}"]


def wrapped(comment: str) -> list[str]:
    """Return a comment, wrapped into lines."""
    return [f"# {line}" for line in textwrap.wrap(comment, _COLUMNS)]


def _kind(noun: str) -> PluginKind:
    return PluginKind[noun.upper()]


def _summary(found: Plugin) -> PluginSummary:
    try:
        described = inspect.getdoc(found.load()) or ""
    except ConfigError as error:
        return PluginSummary(found.name, str(error), found.package, loads=False)
    first = " ".join(described.partition("\n\n")[0].split())
    return PluginSummary(found.name, first, found.package, loads=True)


def _detail(option: PluginOption) -> OptionDetail:
    notes = [option.meaning]
    notes += ["In a file, it is relative to that file."] if option.is_path else []
    notes += ["In a file, file:PATH reads the value from PATH."] if option.is_secret else []
    return OptionDetail(
        name=option.name,
        type=option.kind,
        required=option.required,
        default=None if option.required or option.default is None else toml_value(option.default),
        meaning=" ".join(note for note in notes if note),
        example=None if option.example is None else toml_value(option.example),
    )


def _placeholder(kind: Type) -> object:
    """Return a value of a type, for an option without an example."""
    if isinstance(kind, Metadata):
        return _placeholder(kind.type)
    if isinstance(kind, UnionType):
        return next(_placeholder(each) for each in kind.types if not isinstance(each, NoneType))
    if isinstance(kind, LiteralType):
        return kind.values[0]
    if isinstance(kind, EnumType):
        return next(iter(kind.cls))
    return _PLACEHOLDERS.get(type(kind), {})
