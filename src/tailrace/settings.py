"""Every setting: its name, default, bounds and meaning, and the source of its value.

A flag overrides the environment, the environment a file, a file the default. The file is the
nearest `tailrace.toml`, or `pyproject.toml` with a `[tool.tailrace]` table, from the current
directory upward. Each setting is also the variable `TAILRACE_SECTION__KEY`, and `TAILRACE_HUB` is
short for `TAILRACE_HUB__PATH`. An unknown or invalid setting is a `ConfigError` that names its
source.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

from tailrace.amount import is_whole
from tailrace.duration import format_duration, parse_duration
from tailrace.errors import ConfigError, InvalidValue
from tailrace.reporting.address import ADDRESS_VALID, Address, parse_address
from tailrace.size import format_size, parse_size
from tailrace.suggestion import did_you_mean

_SWITCHES: Final = {"true": True, "1": True, "false": False, "0": False}
_VARIABLE: Final = re.compile(r"TAILRACE_([A-Z0-9]\w*?)__(\w+)", re.ASCII)
_OFF: Final = "off"
_LISTEN_VALID: Final = f"{_OFF}, {ADDRESS_VALID}"
_SHORT_VARIABLES: Final = {"TAILRACE_HUB": "hub.path"}


class Sync(StrEnum):
    """When an acknowledged record is on the disk."""

    BATCH = "batch"
    NONE = "none"


def _parse_switch(value: object, what: str) -> bool:
    found = value if isinstance(value, bool) else _SWITCHES.get(str(value).lower())
    if found is None:
        raise InvalidValue(what, value, "true or false")
    return found


def _parse_count(value: object, what: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    if not is_whole(value):
        raise InvalidValue(what, value, "a whole number")
    return value


def _parse_sync(value: object, what: str) -> Sync:
    if value not in list(Sync):
        raise InvalidValue(what, value, "batch or none")
    return Sync(str(value))


def parse_listen(value: object, what: str) -> Address | None:
    """Return the address of a server, or None for ``off``."""
    if value == _OFF:
        return None
    try:
        return parse_address(value, what)
    except InvalidValue as error:
        raise InvalidValue(what, value, _LISTEN_VALID) from error


def _format_listen(value: Address | None) -> str:
    return _OFF if value is None else str(value)


def _parse_path(value: object, what: str) -> str:
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    if not text or "\0" in text:
        raise InvalidValue(what, value, "a directory")
    return text


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a setting: how it is parsed and formatted, and its valid values."""

    parse: Callable[[object, str], Any]
    format: Callable[[Any], str]
    valid: str
    low: Any = None
    high: Any = None

    def read(self, value: object, name: str) -> Any:
        """Return the value of the setting `name`; `InvalidValue` if it is not valid."""
        parsed = self.parse(value, name)
        if self.low is not None and not self.low <= parsed <= self.high:
            raise InvalidValue(name, value, self.valid)
        return parsed


def _size(low: str, high: str) -> Kind:
    bounds = parse_size(low), parse_size(high)
    return Kind(parse_size, format_size, f"{low} to {high}", *bounds)


def _duration(low: str, high: str) -> Kind:
    bounds = parse_duration(low), parse_duration(high)
    return Kind(parse_duration, format_duration, f"{low} to {high}", *bounds)


def _count(low: int, high: int) -> Kind:
    return Kind(_parse_count, str, f"{low:,} to {high:,}", low, high)


_PATH: Final = Kind(_parse_path, str, "a directory; in a file, relative to that file")
_SWITCH: Final = Kind(_parse_switch, lambda value: str(value).lower(), "true or false")
_LISTEN: Final = Kind(parse_listen, _format_listen, _LISTEN_VALID)
_SYNC: Final = Kind(_parse_sync, str, "batch or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """The section `hub`. Each setting declares its type, valid values, meaning and default."""

    path: Annotated[str, _PATH, "Directory of the hub."] = "tailrace-data"
    sync: Annotated[
        Sync,
        _SYNC,
        "Sync policy, set when the hub is created. `batch`: a push returns when it is on the disk. "
        "`none`: a push survives the end of its process, but not a crash of the machine.",
    ] = Sync.BATCH
    auto_create: Annotated[bool, _SWITCH, "Create the topic on a push to an unknown topic."] = False
    lock_timeout: Annotated[
        timedelta,
        _duration("1ms", "1h"),
        "How long a write waits for other processes before it raises `BackendUnavailable`.",
    ] = timedelta(seconds=10)
    message_bytes_max: Annotated[
        int, _size("1B", "1GiB"), "Maximum size of a message, headers included."
    ] = 1 << 20
    key_bytes_max: Annotated[int, _size("1B", "1MiB"), "Maximum size of a key."] = 64 << 10
    segment_bytes: Annotated[
        int,
        _size("64B", "4294967295B"),
        "Maximum size of a segment file. A batch that would exceed it starts a new segment.",
    ] = 1 << 30
    batch_bytes: Annotated[
        int, _size("1B", "1GiB"), "A pipelined producer sends when its batch has this size."
    ] = 1 << 20
    linger: Annotated[
        timedelta,
        _duration("0s", "1m"),
        "A pipelined producer sends when its oldest message has waited this long.",
    ] = timedelta(milliseconds=5)
    dedup_window: Annotated[
        timedelta,
        _duration("1ms", "30d"),
        "How long a `dedup_id` is remembered. A second push with the same id stores nothing.",
    ] = timedelta(minutes=5)
    lease: Annotated[
        timedelta,
        _duration("500ms", "10m"),
        "How long a silent consumer of a group keeps its partitions if it is not proven dead. Use "
        "the same value in all processes of a hub.",
    ] = timedelta(seconds=3)
    progress_interval: Annotated[
        timedelta,
        _duration("1ms", "1m"),
        "Maximum time until an acknowledgement of a group's consumer is durable.",
    ] = timedelta(seconds=1)
    prefetch_bytes: Annotated[
        int,
        _size("1B", "1GiB"),
        "Approximate size of the messages that a consumer of a group reads ahead, for all its "
        "partitions together, and holds back in each partition for unacknowledged ones.",
    ] = 8 << 20
    attempts: Annotated[
        int,
        _count(1, 1_000_000),
        "Maximum number of attempts to deliver a message to a loop over a group, and to a handler "
        "with on_failed and without retry.",
    ] = 5
    handler_timeout: Annotated[
        timedelta,
        _duration("1ms", "1d"),
        "Maximum time for one message when its partition is revoked. After that, and 5 s more, the "
        "partition is granted to another consumer.",
    ] = timedelta(seconds=30)
    redelivery_records_max: Annotated[
        int,
        _count(1, 100_000_000),
        "Maximum number of messages of a partition that are redelivered after a crash.",
    ] = 65_536

    @classmethod
    def of(cls, **options: object) -> HubSettings:
        """Return settings given in Python, each as its type or as text; else `InvalidValue`."""
        known = {s.key: s for s in _SETTINGS.values() if s.section == "hub"}
        for key in options.keys() - known.keys():
            raise InvalidValue("setting", key, ", ".join(known))
        return cls(**{key: known[key].kind.read(value, key) for key, value in options.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The section `metrics`."""

    listen: Annotated[
        Address | None,
        _LISTEN,
        "Address at which `tailrace run` and `run` of subscriptions, pipelines and sources serve "
        "metrics and health. A port alone is that of 127.0.0.1.",
    ] = None


class _Setting(NamedTuple):
    section: str
    key: str
    default: Any
    kind: Kind
    meaning: str


def _declared(section: str, cls: type) -> Iterator[_Setting]:
    defaults = cls()
    for key, hint in get_type_hints(cls, include_extras=True).items():
        yield _Setting(section, key, getattr(defaults, key), *hint.__metadata__)


_SECTIONS: Final = {"hub": HubSettings, "metrics": MetricsSettings}
_SETTINGS: Final = {
    f"{s.section}.{s.key}": s for name, cls in _SECTIONS.items() for s in _declared(name, cls)
}


class SettingDoc(NamedTuple):
    """A setting for documentation; its default and bounds as text."""

    name: str
    environment: str
    default: str
    valid: str
    meaning: str


def describe() -> list[SettingDoc]:
    """Return every setting, in the order of the documentation."""
    return [
        SettingDoc(
            name=name,
            environment=f"TAILRACE_{setting.section}__{setting.key}".upper(),
            default=setting.kind.format(setting.default),
            valid=setting.kind.valid,
            meaning=setting.meaning,
        )
        for name, setting in _SETTINGS.items()
    ]


class SettingValue(NamedTuple):
    """A setting in force, as text, and its source."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings in force; `origins` has the source of each: flag, variable, file or default."""

    hub: HubSettings
    metrics: MetricsSettings
    origins: Mapping[str, str]

    def values(self) -> list[SettingValue]:
        """Return every setting with its value and source, for `config show`."""
        return [
            SettingValue(
                name,
                s.kind.format(getattr(getattr(self, s.section), s.key)),
                self.origins[name],
            )
            for name, s in _SETTINGS.items()
        ]


class _Given(NamedTuple):
    value: object
    origin: str


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    start_dir: str | os.PathLike[str] = ".",
) -> Settings:
    """Return the settings in force; flags are named like settings (`hub.path`), or None."""
    given = _from_file(Path(start_dir))
    given |= _from_environment(os.environ if environ is None else environ)
    for name, value in (flags or {}).items():
        if value is not None:
            given[name] = _Given(value, "flag")
    values: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    for name, (value, origin) in given.items():
        if name not in _SETTINGS:
            raise ConfigError(
                f"{origin}: unknown setting {name}",
                did_you_mean(name, _SETTINGS),
                "list all: tailrace config show",
            )
        setting = _SETTINGS[name]
        try:
            values[setting.section][setting.key] = setting.kind.read(value, name)
        except InvalidValue as error:
            raise ConfigError(f"{origin}: {error}") from error
    origins = {name: given[name].origin if name in given else "default" for name in _SETTINGS}
    hub, metrics = HubSettings(**values["hub"]), MetricsSettings(**values["metrics"])
    return Settings(hub, metrics, origins)


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    given = {}
    for variable, value in sorted(environ.items()):
        match = _VARIABLE.fullmatch(variable)
        name = f"{match[1]}.{match[2]}".lower() if match else _SHORT_VARIABLES.get(variable)
        if name is not None and value:
            given[name] = _Given(value, variable)
    return given


def _from_file(start_dir: Path) -> dict[str, _Given]:
    try:
        start = start_dir.absolute()
    except FileNotFoundError:
        return {}  # The working directory was removed.
    for directory in (start, *start.parents):
        own = _tables(directory / "tailrace.toml")
        shared = _tables(directory / "pyproject.toml", "tool", "tailrace")
        if own is not None and shared is not None:
            raise ConfigError(
                f"{directory} has both tailrace.toml and [tool.tailrace] in pyproject.toml",
                "keep one of them",
            )
        if own is not None:
            return _flattened(own, directory / "tailrace.toml")
        if shared is not None:
            return _flattened(shared, directory / "pyproject.toml")
    return {}


def _tables(file: Path, *path: str) -> dict[str, Any] | None:
    """Return a file's settings below `path`, or None if it has none."""
    try:
        text = file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    if not all(word in text for word in path):
        return None
    try:
        found: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from error
    for word in path:
        found = found.get(word) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _flattened(tables: Mapping[str, Any], file: Path) -> dict[str, _Given]:
    given = {}
    for section, table in tables.items():
        if not isinstance(table, dict):
            given[section] = _Given(table, str(file))
            continue
        for key, value in table.items():
            given[f"{section}.{key}"] = _Given(value, str(file))
    path = given.get("hub.path")
    if path is not None and isinstance(path.value, str) and path.value:
        given["hub.path"] = _Given(str(file.parent / path.value), str(file))
    return given
