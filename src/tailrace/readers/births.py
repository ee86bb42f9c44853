"""When a file was made: what tells it from a deleted one whose number the system gave it."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Final

_OF_DESCRIPTOR: Final = 0x1000
_BIRTH: Final = 0x800
_RESULT_BYTES: Final = 256
_BORN_AT: Final = 80
"""Where Linux's ``struct statx`` has the seconds and nanoseconds of the birth."""

_statx = getattr(ctypes.CDLL(None), "statx", None) if sys.platform == "linux" else None


def born_ns(descriptor: int) -> int:
    """When an open file was made, in nanoseconds; 0 where the system does not tell."""
    if _statx is None:
        return int(getattr(os.fstat(descriptor), "st_birthtime", 0) * 10**9)
    found = ctypes.create_string_buffer(_RESULT_BYTES)
    if _statx(descriptor, b"", _OF_DESCRIPTOR, _BIRTH, found):
        return 0
    (told,) = struct.unpack_from("I", found)
    seconds, nanoseconds = struct.unpack_from("qI", found, _BORN_AT)
    return int(seconds * 10**9 + nanoseconds) if told & _BIRTH else 0
