"""The position of a key in a file, for error messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import ConfigError, InvalidName, InvalidValue
from tailrace.suggestion import did_you_mean


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key of a definition file: ``writer.crm.url`` in ``lake.toml``."""

    file: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.path}" if self.path else self.file

    @property
    def directory(self) -> Path:
        """The directory that relative paths in the file are relative to."""
        return Path(self.file).absolute().parent

    def at(self, part: str | int) -> ConfigKey:
        """Return a key, or an item of a list, below this one."""
        step = f"[{part}]" if isinstance(part, int) else f".{part}" if self.path else part
        return ConfigKey(self.file, f"{self.path}{step}")

    def error(self, *sentences: str) -> ConfigError:
        """Return an error that names the file and this key."""
        return ConfigError(f"{self}: {sentences[0]}", *sentences[1:])

    @contextmanager
    def attribute_errors(self) -> Iterator[None]:
        """Re-raise errors of the block as errors of this key, or of the key that they name."""
        try:
            yield
        except InvalidValue as error:
            below = error.what.isidentifier() and self.path.rpartition(".")[2] != error.what
            raise (self.at(error.what) if below else self).error(str(error)) from error
        except (ConfigError, InvalidName) as error:
            raise self.error(str(error)) from error

    def table(self, value: object) -> Mapping[str, Any]:
        """Return the value as a table; `ConfigError` if it is none."""
        if not isinstance(value, Mapping):
            raise self.error(f"must be a TOML table, not {value!r:.80}")
        return value

    def check_known(self, names: Iterable[str], known: Iterable[str]) -> None:
        """Raise `ConfigError` for the first name that is not known, and suggest the nearest one."""
        listed = list(known)
        for name in names:
            if name not in listed:
                help_ = did_you_mean(name, listed) or f"valid: {', '.join(listed)}"
                raise self.at(name).error("unknown", help_)
