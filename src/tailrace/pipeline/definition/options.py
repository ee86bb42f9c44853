"""The options of a reader or writer: the fields of its class, and how a table of a file sets them.

`msgspec.Meta` describes an option: its meaning (``description``) and an example (``examples``). Its
``extra`` may have these keys:

``path``    a path; in a file, it is relative to that file
``secret``  a secret; in a file, ``file:PATH`` names the file that holds it
``size``    a number of bytes, which may be text such as ``64KiB``
``sample``  ``tailrace pipeline init`` sets the option, although it is not required
``unset``   the words for an empty default in the documentation: ``all``

If a path is only part of an option, the class implements `ResolvesPaths`.
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
from tailrace.pipeline.definition.config_key import ConfigKey
from tailrace.size import parse_size

S = TypeVar("S", bound=msgspec.Struct)

_AT_KEY: Final = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
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
class ResolvesPaths(Protocol):
    """A reader or writer that resolves the relative paths in its options itself."""

    def resolve_paths(self, directory: Path) -> Self:
        """Return the same options, with paths relative to a directory made absolute."""


@dataclass(frozen=True, slots=True)
class PluginOption:
    """An option as its class declares it. `example` is None if there is none."""

    name: str
    type: inspect.Type
    required: bool
    default: Any
    meaning: str
    example: Any
    is_path: bool
    is_secret: bool
    in_sample: bool
    is_size: bool = False
    unset: str = ""

    @property
    def kind(self) -> str:
        """The type of the option in words."""
        return _words(self.type)


def options_of(declared: type[msgspec.Struct]) -> list[PluginOption]:
    """Return the options that a class declares, in order; `ConfigError` if a type cannot be one."""
    try:
        described = inspect.type_info(declared)
    except TypeError as error:
        raise ConfigError(f"{declared.__qualname__} declares no valid options: {error}") from error
    assert isinstance(described, inspect.StructType)
    return [_option(field) for field in described.fields]


def _option(field: inspect.Field) -> PluginOption:
    kind = field.type
    schema: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        schema = (kind.extra_json_schema or {}) | schema
        extra = (kind.extra or {}) | extra
        kind = kind.type
    made = field.default_factory
    return PluginOption(
        name=field.encode_name,
        type=kind,
        required=field.required,
        default=made() if callable(made) else None if field.required else field.default,
        meaning=schema.get("description", ""),
        example=next(iter(schema.get("examples", ())), None),
        is_path=bool(extra.get("path")),
        is_secret=bool(extra.get("secret")),
        in_sample=field.required or bool(extra.get("sample")),
        is_size=bool(extra.get("size")),
        unset=extra.get("unset", ""),
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


def decode_options(declared: type[S], table: Mapping[str, Any], key: ConfigKey) -> S:
    """Return an instance with the options of a table; `ConfigError` names the key that is wrong."""
    options = {option.name: option for option in options_of(declared)}
    key.check_known(table, options)
    values = {name: _prepared(options[name], value, key.at(name)) for name, value in table.items()}
    try:
        with key.attribute_errors():
            return _made(declared, values, key.directory)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), key) from None


def resolve_paths(options: S, directory: Path) -> S:
    """Return the same reader or writer, with relative paths in its options resolved against a
    directory."""
    paths = {
        option.name: _resolve_path(getattr(options, option.name), directory)
        for option in options_of(type(options))
        if option.is_path
    }
    resolved = msgspec.structs.replace(options, **paths)
    return resolved.resolve_paths(directory) if isinstance(resolved, ResolvesPaths) else resolved


def _made(declared: type[S], values: Mapping[str, Any], directory: Path) -> S:
    try:
        made = msgspec.convert(values, declared)
    except msgspec.ValidationError as error:
        # An error of the class itself keeps its own message.
        if isinstance(error.__cause__, Error):
            raise error.__cause__ from None
        raise
    return made.resolve_paths(directory) if isinstance(made, ResolvesPaths) else made


def _prepared(option: PluginOption, value: Any, key: ConfigKey) -> Any:
    if option.is_secret:
        value = _revealed(value, key)
    if option.is_path:
        return _resolve_path(value, key.directory)
    if isinstance(value, str) and option.is_size:
        with key.attribute_errors():
            return parse_size(value, option.name)
    if isinstance(value, str) and _is_duration(option.type):
        with key.attribute_errors():
            return parse_duration(value, option.name)
    return value


def _is_duration(kind: inspect.Type) -> bool:
    kinds: Sequence[inspect.Type] = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(isinstance(each, inspect.TimeDeltaType) for each in kinds)


def _resolve_path(value: Any, directory: Path) -> Any:
    """Return a path, or a list of paths, relative to the directory; URLs stay the same."""
    if isinstance(value, list):
        return [_resolve_path(each, directory) for each in value]
    if not isinstance(value, str) or not value or "://" in value:
        return value
    # A trailing slash may matter to the plug-in, and joining paths removes it.
    return str(directory / value) + ("/" if value.endswith("/") else "")


def _revealed(value: Any, key: ConfigKey) -> Any:
    """Return the value with each ``file:PATH`` replaced by the content of that file."""
    if isinstance(value, dict):
        return {name: _revealed(each, key.at(name)) for name, each in value.items()}
    if not isinstance(value, str) or not value.startswith("file:"):
        return value
    file = key.directory / value.removeprefix("file:")
    try:
        return file.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise key.error(f"cannot read the secret: {error}") from error


def _refusal(text: str, key: ConfigKey) -> ConfigError:
    found = _AT_KEY.fullmatch(text)
    assert found is not None
    reason, path = found[1], found[2] or ""
    wrong = ConfigKey(key.file, f"{key.path}{path}")
    missing = _MISSING.fullmatch(reason)
    if missing:
        return wrong.at(missing[1]).error("missing, and has no default")
    return wrong.error(reason)
