"""The options of a reader or writer: what its class declares, and a table of a file as them.

An option is a field of the class. `msgspec.Meta` gives its meaning (``description``) and an example
(``examples``). ``extra={"path": True}`` marks a path, which in a file is relative to that file;
``extra={"secret": True}`` a secret, which a file may name as ``file:PATH`` instead;
``extra={"sample": True}`` what a file to begin with sets although it need not. Where a path is only
part of an option, the class is a `Beside`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar, runtime_checkable

import msgspec
from msgspec import inspect

from tailrace.duration import parse_duration
from tailrace.errors import ConfigError, Error
from tailrace.pipeline.key import Key

S = TypeVar("S", bound=msgspec.Struct)

_PLACE: Final = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_WORDS: Final[dict[type[inspect.Type], str]] = {
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.TimeDeltaType: "duration",
    inspect.NoneType: "nothing",
    inspect.AnyType: "anything",
}


@runtime_checkable
class Beside(Protocol):
    """A reader or writer that knows itself what in its options is relative to a file."""

    def beside(self, directory: Path) -> Self:
        """The same, with what is relative starting at a directory."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option as it is declared. `example` is None where none was given."""

    name: str
    type: inspect.Type
    required: bool
    default: Any
    meaning: str
    example: Any
    is_path: bool
    is_secret: bool
    in_sample: bool

    @property
    def kind(self) -> str:
        """What it may be, in words."""
        return _words(self.type)


def options_of(declared: type[msgspec.Struct]) -> list[Option]:
    """The options that a class declares, in its order; `ConfigError` for what none can be."""
    try:
        described = inspect.type_info(declared)
    except TypeError as error:
        raise ConfigError(f"{declared.__qualname__} declares no valid options: {error}") from error
    assert isinstance(described, inspect.StructType)
    return [_option(field) for field in described.fields]


def _option(field: inspect.Field) -> Option:
    kind = field.type
    schema: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        schema = (kind.extra_json_schema or {}) | schema
        extra = (kind.extra or {}) | extra
        kind = kind.type
    made = field.default_factory
    return Option(
        name=field.encode_name,
        type=kind,
        required=field.required,
        default=made() if callable(made) else None if field.required else field.default,
        meaning=schema.get("description", ""),
        example=next(iter(schema.get("examples", ())), None),
        is_path=bool(extra.get("path")),
        is_secret=bool(extra.get("secret")),
        in_sample=field.required or bool(extra.get("sample")),
    )


def _words(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.Metadata):
        return _words(kind.type)
    if isinstance(kind, inspect.UnionType):
        return " or ".join(_words(each) for each in kind.types)
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(str(value) for value in kind.values)
    if isinstance(kind, inspect.EnumType):
        return " or ".join(str(member.value) for member in kind.cls)
    if isinstance(kind, inspect.DictType):
        return f"table of {_words(kind.value_type)}"
    if isinstance(kind, inspect.ListType | inspect.VarTupleType | inspect.SetType):
        return f"list of {_words(kind.item_type)}"
    return _WORDS.get(type(kind), "table")


def decode_options(declared: type[S], table: Mapping[str, Any], key: Key) -> S:
    """A table of a file as an instance; `ConfigError` names the key that is wrong."""
    options = {option.name: option for option in options_of(declared)}
    key.check_known(table, options)
    values = {name: _prepared(options[name], value, key.at(name)) for name, value in table.items()}
    try:
        with key.blamed():
            return _made(declared, values, key.directory)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), key) from None


def _made(declared: type[S], values: Mapping[str, Any], directory: Path) -> S:
    try:
        made = msgspec.convert(values, declared)
    except msgspec.ValidationError as error:
        # What the class itself refuses keeps its own words.
        if isinstance(error.__cause__, Error):
            raise error.__cause__ from None
        raise
    return made.beside(directory) if isinstance(made, Beside) else made


def _prepared(option: Option, value: Any, key: Key) -> Any:
    if option.is_secret:
        value = _revealed(value, key)
    if option.is_path:
        return _beside(value, key.directory)
    if isinstance(value, str) and _is_duration(option.type):
        with key.blamed():
            return parse_duration(value, option.name)
    return value


def _is_duration(kind: inspect.Type) -> bool:
    kinds: Sequence[inspect.Type] = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(isinstance(each, inspect.TimeDeltaType) for each in kinds)


def _beside(value: Any, directory: Path) -> Any:
    if isinstance(value, list):
        return [_beside(each, directory) for each in value]
    if not isinstance(value, str) or not value or "://" in value:
        return value
    # A trailing slash may mean something to the plug-in; a path without one loses it.
    return str(directory / value) + ("/" if value.endswith("/") else "")


def _revealed(value: Any, key: Key) -> Any:
    """A value with what the files hold that it names as ``file:PATH``, itself or in a table."""
    if isinstance(value, dict):
        return {name: _revealed(each, key.at(name)) for name, each in value.items()}
    if not isinstance(value, str) or not value.startswith("file:"):
        return value
    file = key.directory / value.removeprefix("file:")
    try:
        return file.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise key.error(f"its secret cannot be read: {error}") from error


def _refusal(text: str, key: Key) -> ConfigError:
    found = _PLACE.fullmatch(text)
    assert found is not None
    reason, place = found[1], found[2] or ""
    wrong = Key(key.file, f"{key.path}{place}")
    missing = _MISSING.fullmatch(reason)
    if missing:
        return wrong.at(missing[1]).error("missing, and has no default")
    return wrong.error(reason)
