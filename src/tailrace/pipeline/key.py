"""Where in a file something stands, so that an error about it can say so."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import ConfigError, InvalidName, InvalidValue


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a file of definitions: ``writer.crm.url`` of ``lake.toml``."""

    file: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.path}" if self.path else self.file

    @property
    def directory(self) -> Path:
        """What relative paths in the file are relative to."""
        return Path(self.file).absolute().parent

    def at(self, part: str | int) -> Key:
        """A key, or an item of a list, below this one."""
        step = f"[{part}]" if isinstance(part, int) else f".{part}" if self.path else part
        return Key(self.file, f"{self.path}{step}")

    def error(self, *sentences: str) -> ConfigError:
        """The error that something is wrong here."""
        return ConfigError(f"{self}: {sentences[0]}", *sentences[1:])

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """What is refused inside is this key's fault, or that of the one below that it names."""
        try:
            yield
        except InvalidValue as error:
            below = error.what.isidentifier() and self.path.rpartition(".")[2] != error.what
            raise (self.at(error.what) if below else self).error(str(error)) from error
        except (ConfigError, InvalidName) as error:
            raise self.error(str(error)) from error

    def table(self, value: object) -> Mapping[str, Any]:
        """The value here as a table."""
        if not isinstance(value, Mapping):
            raise self.error(f"{value!r:.80} is no table")
        return value

    def check_known(self, names: Iterable[str], known: Iterable[str]) -> None:
        """A `ConfigError` for the first of the names that is not known, with the nearest one."""
        listed = list(known)
        for name in names:
            if name not in listed:
                near = difflib.get_close_matches(name, listed, n=1)
                help_ = f"did you mean {near[0]}?" if near else f"valid: {', '.join(listed)}"
                raise self.at(name).error("unknown", help_)
