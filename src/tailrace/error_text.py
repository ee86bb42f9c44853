"""The text of an error as it is stored: of limited length, and always valid UTF-8.

The text of an exception can have surrogates, such as those of a file name that is not UTF-8. No
encoder accepts them.
"""

from __future__ import annotations

from typing import Final

ERROR_CHARACTERS_MAX: Final = 1000


def storable(error: str) -> str:
    """Return the text of an error, truncated, with a backslash escape for each surrogate."""
    return error[:ERROR_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()
