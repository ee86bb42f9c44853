"""The text of an error, for people; and as it is stored: of limited length, always valid UTF-8.

The text of an exception can have surrogates, such as those of a file name that is not UTF-8. No
encoder accepts them.
"""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Final

ERROR_CHARACTERS_MAX: Final = 1000

TRACE_CHARACTERS_MAX: Final = 8000
"""The length of a traceback. Of a longer one, the end is kept, where the error was raised."""

_CALLERS: Final = frozenset({"tailrace", "asyncio"})
"""The packages that call the functions of users."""


def describe_error(error: BaseException) -> str:
    """Return the kind and the text of an error, for people."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_trace(error: BaseException) -> str:
    """Return the traceback of an error, from the first frame of the function of the user on.

    It can be stored, and ends with a line break.
    """
    try:
        lines = traceback.format_exception(type(error), error, _user_frames(error.__traceback__))
    except Exception:
        return f"{describe_error(error)}\n"
    text = "".join(lines)
    if len(text) > TRACE_CHARACTERS_MAX:
        text = f"...\n{text[-TRACE_CHARACTERS_MAX:]}"
    return _encodable(text)


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that called the function of the user; all of it if it
    has no others."""
    found = frames
    while found is not None:
        module = str(found.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _CALLERS:
            return found
        found = found.tb_next
    return frames


def storable(error: str) -> str:
    """Return the text of an error, truncated, with a backslash escape for each surrogate."""
    return _encodable(error[:ERROR_CHARACTERS_MAX])


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
