"""Sizes as text: ``64KiB``, ``1GiB``, or plain bytes."""

from __future__ import annotations

import re
from typing import Final

from tailrace.amount import is_whole
from tailrace.errors import InvalidValue

_UNITS: Final = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_SIZE: Final = re.compile(r"(\d+) ?(GiB|MiB|KiB|B)?", re.ASCII)


def parse_size(value: object, what: str = "size") -> int:
    """Parse a size in bytes, given as a number or as text such as ``64KiB``."""
    if is_whole(value) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidValue(what, value, "bytes as a number, or text such as 64KiB, 1MiB, 2GiB")
    return int(match[1]) * _UNITS[match[2] or "B"]


def format_size(size_bytes: int) -> str:
    """Return the shortest text that parses to the same size: 1048576 is ``1MiB``, 1000 is
    ``1000B``."""
    for name, unit in _UNITS.items():
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return "0B"
