"""Settings of Spark as users write them: names that begin with ``spark.``, values as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tailrace.errors import InvalidValue

_PREFIX: Final = "spark."
_VALID_NAME: Final = "names that begin with spark., such as spark.executor.memory"


def read_spark_settings(value: object, what: str) -> dict[str, str]:
    """Return the settings of a table, the argument `what`.

    Values may be numbers, true and false. In TOML a name without quotes, ``spark.ui.port = 4050``,
    is a table in a table; both ways are read. `InvalidValue` names the setting that is not valid.
    """
    if not isinstance(value, Mapping):
        raise InvalidValue(what, value, "a table of Spark settings")
    return dict(_settings(value, ""))


def read_spark_argument(text: str, what: str) -> tuple[str, str]:
    """Return the setting of a command line argument, ``spark.executor.memory=2g``."""
    name, equals, value = text.partition("=")
    if not equals or not _is_valid(name.strip()):
        raise InvalidValue(what, text, f"NAME=VALUE, with {_VALID_NAME}")
    return name.strip(), value.strip()


def _settings(table: Mapping[object, object], above: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from _settings(value, f"{name}.")
            continue
        if not _is_valid(name):
            raise InvalidValue(name, value, _VALID_NAME)
        if isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            raise InvalidValue(name, value, "text, a number, true or false")


def _is_valid(name: str) -> bool:
    return name.startswith(_PREFIX) and len(name) > len(_PREFIX)
