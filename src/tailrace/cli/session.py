"""What one run of a command has: its settings, the hub it opens, the form of its output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tailrace.errors import IncompatibleHub

if TYPE_CHECKING:
    from tailrace.hub import Hub
    from tailrace.settings import Settings

V = TypeVar("V")


class ExitStatus(IntEnum):
    """What a command tells its caller."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    STOPPED = 3
    NOT_WELL = 4


class Output(StrEnum):
    """The form of what a command prints."""

    TABLE = "table"
    JSON = "json"


@dataclass
class Session:
    """The options that every command has; `--hub` given to a verb wins over one before the noun."""

    hub_path: str | None = None
    output: Output = Output.TABLE
    debug: bool = False

    @cached_property
    def settings(self) -> Settings:
        """The settings in force; `ConfigError` when one of them is not valid."""
        from tailrace.settings import load

        return load({"hub.path": self.hub_path})

    @property
    def has_hub(self) -> bool:
        """Whether the hub is there already; one that is not a directory always is."""
        path = self.settings.hub.path
        return "://" in path or Path(path, "hub.db").exists()

    def open_hub(self) -> Hub:
        """Open the hub that is there. Where there is none, none is made."""
        path = self.settings.hub.path
        if not self.has_hub:
            flag = "" if self.hub_path is None else f" --hub {path}"
            raise IncompatibleHub(
                f"no hub in {path}",
                f"make one: tailrace topic create NAME{flag}, or tailrace pipeline run FILE{flag}",
            )
        return self.create_hub()

    def create_hub(self) -> Hub:
        """Open the hub, made where there is none."""
        from tailrace.hub import open as open_hub

        return open_hub(settings=self.settings.hub)

    def show(self, value: V, table: Callable[[V], str]) -> None:
        """Print a value as JSON, or as what `table` makes of it."""
        click.echo(as_json(value) if self.output is Output.JSON else table(value))


def as_json(value: object) -> bytes:
    """A value as one line of JSON; on a terminal as many as it takes to read it well."""
    import msgspec

    line = msgspec.json.encode(value)
    return msgspec.json.format(line, indent=2) if sys.stdout.isatty() else line
