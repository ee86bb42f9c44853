"""Durations as text: ``30s``, ``5ms``, ``1h30m``, the same in Python, TOML and commands."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from tailrace.errors import InvalidValue

_UNITS: Final = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(us|ms|d|h|m|s)", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)

FORM: Final = "a timedelta or text such as 500ms, 30s, 5m, 1h30m, 7d"


def parse_duration(value: object, what: str = "duration") -> timedelta:
    """Parse a duration, which must not be negative; a timedelta is returned as it is.

    A bare number is an `InvalidValue`, because it has no unit.
    """
    if isinstance(value, timedelta) and value >= timedelta():
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(text := value.replace(" ", "")):
        try:
            parts = (float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
            return sum(parts, timedelta())
        except OverflowError:
            pass
    raise InvalidValue(what, value, FORM)


def format_age(duration: timedelta) -> str:
    """Return a duration for people, in its largest unit and rounded down: ``41 min``, ``3 h``."""
    for name, unit in (("d", "d"), ("h", "h"), ("min", "m")):
        if duration >= _UNITS[unit]:
            return f"{duration // _UNITS[unit]:,} {name}"
    return f"{max(timedelta(), duration) // _UNITS['s']} s"


def format_duration(duration: timedelta) -> str:
    """Return the shortest text that parses to the same duration: ``90s`` is ``1m30s``."""
    rest = duration
    text = ""
    for name, unit in _UNITS.items():
        count, rest = divmod(rest, unit)
        text += f"{count}{name}" if count else ""
    return text or "0s"
