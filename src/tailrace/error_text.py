"""The text of an error, for people; and as it is stored: of limited length, always valid UTF-8.

The text of an exception can have surrogates, such as those of a file name that is not UTF-8. No
encoder accepts them.
"""

from __future__ import annotations

from typing import Final

ERROR_CHARACTERS_MAX: Final = 1000


def describe_error(error: BaseException) -> str:
    """Return the kind and the text of an error, for people."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def storable(error: str) -> str:
    """Return the text of an error, truncated, with a backslash escape for each surrogate."""
    return error[:ERROR_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()
