"""Messages of Tailrace in the errors of Spark."""

from __future__ import annotations

import re
from typing import Final

_MESSAGE: Final = re.compile(r"(?:\btailrace\.errors\.\w+: |\[USER_RAISED_EXCEPTION\] )(.*)")
"""The second form is that of the native reader."""


def tailrace_message(error: BaseException) -> str | None:
    """Return the message of the Tailrace error that caused a Spark error; None if there is none."""
    match = _MESSAGE.search(str(error))
    return None if match is None else match[1].strip()
