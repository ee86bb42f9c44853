"""Shares as numbers and as text: ``10%``, the same in Python and in commands."""

from __future__ import annotations

import re
from typing import Final

from tailrace.errors import InvalidValue

VALID: Final = "more than 0% and at most 100%, or a number above 0 and at most 1"

_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?) ?%", re.ASCII)


def parse_share(given: object, what: str) -> float:
    """Parse a share. Raises `InvalidValue`, which names what was given."""
    share = 0.0
    if isinstance(given, str) and (found := _PERCENT.fullmatch(given)):
        share = float(found[1]) / 100
    elif isinstance(given, int | float) and not isinstance(given, bool):
        share = float(given)
    if not 0 < share <= 1:
        raise InvalidValue(what, given, VALID)
    return share


def format_share(share: float) -> str:
    """Return a share as text that parses to it."""
    return f"{share * 100:.10g}%"
