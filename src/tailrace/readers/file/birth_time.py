"""The time at which a file was created.

An inode number is reused after a file is deleted; the creation time tells the two files apart.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Final

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_RESULT_BYTES: Final = 256
_BTIME_OFFSET: Final = 80
"""Offset of the seconds and nanoseconds of the creation time in Linux's ``struct statx``."""

_statx = getattr(ctypes.CDLL(None), "statx", None) if sys.platform == "linux" else None


def birth_time_ns(descriptor: int) -> int:
    """Return when an open file was created, in nanoseconds; 0 if the system does not record it."""
    if _statx is None:
        return int(getattr(os.fstat(descriptor), "st_birthtime", 0) * 10**9)
    result = ctypes.create_string_buffer(_RESULT_BYTES)
    if _statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, result):
        return 0
    (mask,) = struct.unpack_from("I", result)
    seconds, nanoseconds = struct.unpack_from("qI", result, _BTIME_OFFSET)
    return int(seconds * 10**9 + nanoseconds) if mask & _STATX_BTIME else 0
