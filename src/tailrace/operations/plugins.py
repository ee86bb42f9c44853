"""What readers and writers there are, what options each has, and a sample of it in TOML."""

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
from tailrace.operations.toml_text import toml_value
from tailrace.pipeline.options import Option, options_of
from tailrace.pipeline.plugins import Kind, Plugin, plugin, plugins

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
    """A reader or writer in a list. `summary` says why where it cannot be loaded."""

    name: str
    summary: str
    package: str
    loads: bool


@dataclass(frozen=True, slots=True)
class OptionDetail:
    """An option for people: everything in writing, as TOML has it. No default: it is required."""

    name: str
    type: str
    required: bool
    default: str | None
    meaning: str
    example: str | None


@dataclass(frozen=True, slots=True)
class PluginDetail:
    """A reader or writer with all its options and a sample of its table."""

    name: str
    package: str
    description: str
    options: list[OptionDetail]
    sample: str


def list_plugins(noun: str) -> list[PluginSummary]:
    """All readers, or all writers, also those that cannot be loaded."""
    return [_summary(found) for found in plugins(_kind(noun)).values()]


def show_plugin(noun: str, name: str) -> PluginDetail:
    """One of them; `ConfigError` where there is none, or it cannot be loaded."""
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
    """A table of a file for a reader or writer: what is needed by example, the rest commented."""
    found = plugin(_kind(noun), name)
    heading = table or ("reader" if found.kind is Kind.READER else f"writer.{name}")
    lines = [f"[{heading}]", f"type = {toml_value(name)}"]
    for option in options_of(found.load()):
        lines += sample_lines(option)
    return "\n".join(lines)


def sample_lines(option: Option) -> list[str]:
    """An option in a file: its meaning, and a line to keep or to uncomment."""
    hint = " May be file:PATH." if option.is_secret else ""
    comment = wrapped(f"{option.meaning or option.kind}{hint}")
    value = option.default if option.default not in _EMPTY else option.example
    shown = toml_value(_placeholder(option.type) if value is None else value)
    return [*comment, f"{'' if option.in_sample else '#'}{option.name} = {shown}"]


def wrapped(comment: str) -> list[str]:
    """A comment in as many lines as it takes."""
    return [f"# {line}" for line in textwrap.wrap(comment, _COLUMNS)]


def _kind(noun: str) -> Kind:
    return Kind[noun.upper()]


def _summary(found: Plugin) -> PluginSummary:
    try:
        described = inspect.getdoc(found.load()) or ""
    except ConfigError as error:
        return PluginSummary(found.name, str(error), found.package, loads=False)
    first = " ".join(described.partition("\n\n")[0].split())
    return PluginSummary(found.name, first, found.package, loads=True)


def _detail(option: Option) -> OptionDetail:
    notes = [option.meaning]
    notes += ["In a file, relative to that file."] if option.is_path else []
    notes += ["In a file, file:PATH reads it from there."] if option.is_secret else []
    return OptionDetail(
        name=option.name,
        type=option.kind,
        required=option.required,
        default=None if option.required or option.default is None else toml_value(option.default),
        meaning=" ".join(note for note in notes if note),
        example=None if option.example is None else toml_value(option.example),
    )


def _placeholder(kind: Type) -> object:
    """A value of that type, for an option that gives no example."""
    if isinstance(kind, Metadata):
        return _placeholder(kind.type)
    if isinstance(kind, UnionType):
        return next(_placeholder(each) for each in kind.types if not isinstance(each, NoneType))
    if isinstance(kind, LiteralType):
        return kind.values[0]
    if isinstance(kind, EnumType):
        return next(iter(kind.cls))
    return _PLACEHOLDERS.get(type(kind), {})
