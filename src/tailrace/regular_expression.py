"""RE2 regular expressions: the time of a search grows linearly with the text.

Arrow's kernels use RE2, so no other engine is needed. RE2 has no backreferences and no lookaround.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidValue

VALID: Final = "a regular expression of RE2, which has no backreferences and no lookaround"

_REMEMBERED_TEXTS_MAX: Final = 1000


def check_expression(what: str, expression: object) -> str:
    """Return the expression; `InvalidValue` with RE2's reason if it is not valid."""
    if not isinstance(expression, str):
        raise InvalidValue(what, expression, VALID)
    try:
        search(expression, ("",))
    except pa.ArrowInvalid as error:
        raise InvalidValue(what, expression, VALID, _reason(error)) from None
    return expression


def check_replacement(what: str, expression: str, replacement: str) -> str:
    r"""Return the replacement; `InvalidValue` if ``\1`` is not a group of the expression."""
    try:
        replace(expression, replacement, ("",))
    except pa.ArrowInvalid as error:
        valid = r"text with \0 for the match and \1 to \9 for groups of the expression"
        raise InvalidValue(what, replacement, valid, _reason(error)) from None
    return replacement


def search(expression: str, texts: Sequence[str | None]) -> list[bool]:
    """Return, for each text, True if the expression is found in it; False for None."""
    if len(texts) <= _REMEMBERED_TEXTS_MAX:
        return list(_found(expression, tuple(texts)))
    return list(_found.__wrapped__(expression, tuple(texts)))


def search_column(expression: str, texts: pa.Array[Any]) -> pa.Array[Any]:
    """Do the same for a column of text, without a cache; null counts as text without a match."""
    return pc.match_substring_regex(texts, pattern=expression).fill_null(False)


def replace(expression: str, replacement: str, texts: Sequence[str]) -> list[str]:
    r"""Return each text with every match replaced; ``\1`` is the first group."""
    replaced: list[Any] = pc.replace_substring_regex(
        pa.array(texts, pa.string()), pattern=expression, replacement=replacement
    ).to_pylist()
    return replaced


@lru_cache(maxsize=256)
def _found(expression: str, texts: tuple[str | None, ...]) -> tuple[bool, ...]:
    found = pc.match_substring_regex(pa.array(texts, pa.string()), pattern=expression)
    return tuple(map(bool, found.to_pylist()))


def _reason(error: pa.ArrowInvalid) -> str:
    return str(error).partition(": ")[2]
