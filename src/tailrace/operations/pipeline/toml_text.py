"""Writing values as TOML: durations as text, no key omitted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from tailrace.duration import format_duration


def toml_value(value: Any) -> str:
    """Return a value as TOML on one line."""
    plain = msgspec.to_builtins(value, builtin_types=(timedelta,))
    if isinstance(plain, timedelta):
        return toml_value(format_duration(plain))
    if isinstance(plain, str):
        return json.dumps(plain, ensure_ascii=False)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, Mapping):
        pairs = (f"{toml_value(str(key))} = {toml_value(each)}" for key, each in plain.items())
        inner = ", ".join(pairs)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(plain, list | tuple):
        return f"[{', '.join(map(toml_value, plain))}]"
    return str(plain)
