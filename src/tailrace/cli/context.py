"""The context of one command: its settings, its hub and its output format."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tailrace.cli.commands import name_hub
from tailrace.errors import NotSupported

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.settings import HubSettings, Settings

V = TypeVar("V")


class ExitStatus(IntEnum):
    """The exit status of a command."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    STOPPED = 3
    NOT_WELL = 4


class Output(StrEnum):
    """The output format of a command."""

    TABLE = "table"
    JSON = "json"


def open_directory(settings: HubSettings) -> Hub:
    """Open the hub in the directory that the settings name."""
    from tailrace.hub.opening import open as open_hub

    return open_hub(settings=settings)


def open_read_only(settings: HubSettings) -> Hub:
    """Open the hub in the directory that the settings name, and write nothing."""
    from tailrace.hub.opening import open as open_hub

    return open_hub(settings=settings, mode="ro")


@dataclass
class CommandContext:
    """The options of every command. ``--hub`` after the verb overrides one before the noun."""

    hub_path: str | None = None
    output: Output = Output.TABLE
    debug: bool = False
    read_only: bool = False
    opener: Callable[[HubSettings], Hub] = open_directory
    """Opens the hub. One that is not `open_directory` opens a hub of another backend, which always
    exists."""

    @cached_property
    def settings(self) -> Settings:
        """The settings in force. Raise `ConfigError` if one is not valid."""
        from tailrace.settings import load

        return load({"hub.path": self.hub_path})

    @property
    def has_hub(self) -> bool:
        """True if the hub exists; a hub that is not in a directory always does."""
        path = self.settings.hub.path
        is_directory = self.opener is open_directory and "://" not in path
        try:
            return not is_directory or Path(path, "hub.db").exists()
        except PermissionError:
            return True  # To open it tells what is missing.

    def open_hub(self) -> Hub:
        """Open an existing hub. Raise `UnknownHub` if there is none."""
        if not self.has_hub:
            from tailrace.hub.opening import open as open_hub

            return open_hub(settings=self.settings.hub, create=False)
        return self.create_hub()

    def open_to_read(self) -> Hub:
        """Open an existing hub and write nothing, if that is possible for its backend."""
        return replace(self, read_only=self.opener is open_directory).open_hub()

    def create_hub(self) -> Hub:
        """Open the hub. Create it if it does not exist, unless it is to be opened read-only."""
        if not self.read_only:
            return self.opener(self.settings.hub)
        if self.opener is not open_directory:
            raise NotSupported(
                "be opened read-only", self.settings.hub.path, "it is not in a directory"
            )
        return open_read_only(self.settings.hub)

    def show(self, value: V, table: Callable[[V], str]) -> None:
        """Print a value as JSON, or as the text that `table` returns.

        Suggested commands in it name the hub.
        """
        click.echo(self.as_json(value) if self.output is Output.JSON else self.text(table(value)))

    def show_stored(self, value: V, table: Callable[[V], str]) -> None:
        """Print a value that users have stored, unchanged: as JSON, or as `table` returns it."""
        click.echo(_layout(_encoded(value)) if self.output is Output.JSON else table(value))

    def text(self, text: str) -> str:
        """Return a text whose suggested commands name the hub, if ``--hub`` named it.

        Every text that a command prints comes from here, so that a command which is pasted acts on
        the same hub.
        """
        return text if self.hub_path is None else name_hub(text, self.hub_path)

    def as_json(self, value: object) -> bytes:
        """Return a value as one line of JSON, or indented on a terminal.

        Suggested commands in its texts name the hub, as those of `text` do.
        """
        return _layout(self.as_line(value))

    def as_line(self, value: object) -> bytes:
        """Return a value as one line of JSON, with the hub in its suggested commands."""
        import msgspec

        if self.hub_path is None:
            return _encoded(value)

        def named(part: Any) -> Any:
            if isinstance(part, str):
                return self.text(part)
            if isinstance(part, list):
                return [named(each) for each in part]
            if isinstance(part, dict):
                return {name: named(each) for name, each in part.items()}
            return part

        return _encoded(named(msgspec.json.decode(_encoded(value))))


def _encoded(value: object) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def _layout(line: bytes) -> bytes:
    """Return a line of JSON, indented if standard output is a terminal."""
    import msgspec

    return msgspec.json.format(line, indent=2) if sys.stdout.isatty() else line
