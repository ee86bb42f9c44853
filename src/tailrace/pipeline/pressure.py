"""Back-pressure: how much of the commit log waits for the slowest writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RECORD_BYTES_ASSUMED: Final = 256
"""A record's size while none was read yet."""


class Pressure:
    """Says which writer the reader has to wait for, if any.

    Sizes are reckoned from the number of records behind and the average size of what was read.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max

    def held_by(self, behind: Mapping[str, int], read_rows: int, read_bytes: int) -> str | None:
        """The writer that is furthest behind, if that is too far."""
        if not behind:
            return None
        record_bytes = read_bytes / read_rows if read_rows else RECORD_BYTES_ASSUMED
        slowest = max(behind, key=lambda name: behind[name])
        return slowest if behind[slowest] * record_bytes > self._bytes_max else None
