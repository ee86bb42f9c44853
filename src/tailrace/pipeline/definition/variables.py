"""Environment variables in the strings of a file: ``${NAME}``; ``$${`` is a literal ``${``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tailrace.pipeline.definition.config_key import ConfigKey

_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def expand_variables(value: Any, environ: Mapping[str, str], key: ConfigKey) -> Any:
    """Return a value with the variables in all its strings replaced.

    `ConfigError` if one is not set.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _value(found, environ, key), value)
    if isinstance(value, dict):
        return {name: expand_variables(each, environ, key.at(name)) for name, each in value.items()}
    if isinstance(value, list):
        return [expand_variables(each, environ, key.at(index)) for index, each in enumerate(value)]
    return value


def _value(found: re.Match[str], environ: Mapping[str, str], key: ConfigKey) -> str:
    name = found[1]
    if name is None:
        return "${"
    if not found[0].endswith("}") or _NAME.fullmatch(name) is None:
        raise key.error(f"{found[0]} is not a variable", "valid: ${NAME}, or $${ for a literal ${")
    if name not in environ:
        raise key.error(f"the variable {name} is not set", "set it, or write $${ for a literal ${")
    return environ[name]
