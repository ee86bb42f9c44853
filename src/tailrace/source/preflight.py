"""The preflight of a reader: connect and check everything, write nothing."""

from __future__ import annotations

from typing import Final

from tailrace.errors import ConfigError, Error, NothingToRead
from tailrace.hub.hub import Hub
from tailrace.reserved_names import COMMIT_LOG_SUFFIX, DEAD_LETTERS_SUFFIX
from tailrace.source.reader import Reader

_ALLOW: Final = "to run anyway: --allow-empty, or allow_empty=True in Python"


def check_reading(
    name: str, reader: Reader, hub: Hub | None, *, origin: str, allow_empty: bool
) -> str | None:
    """Check the reader of a source of this name; return why it has nothing to read, None if it has.

    `ConfigError` names the file `origin` and what is wrong, also if the source does not answer. A
    source with nothing to read is `NothingToRead`, unless `allow_empty`. `hub` is None if it does
    not exist yet.
    """
    key = file_key(origin, "reader")
    try:
        if hub is not None:
            reader.check_hub(hub, (name + COMMIT_LOG_SUFFIX, name + DEAD_LETTERS_SUFFIX))
        reader.check()
    except NothingToRead as nothing:
        if not allow_empty:
            raise NothingToRead(f"{key}: {nothing}", _ALLOW) from nothing
        return str(nothing)
    except (Error, OSError) as error:
        raise ConfigError(f"{key}: {error}") from error
    return None


def file_key(origin: str, key: str) -> str:
    """Return a key of a definition, with its file if it has one."""
    return f"{origin}: {key}" if origin else key
