"""Back-pressure: the reader pauses while the slowest writer lags too far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RECORD_BYTES_ASSUMED: Final = 256
"""The assumed size of a record until the first one was read."""


class Backpressure:
    """Finds the writer that the reader has to wait for.

    Estimates the lag in bytes from the lag in records and the average size of the records read.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max

    def blocked_by(self, lags: Mapping[str, int], read_rows: int, read_bytes: int) -> str | None:
        """Return the writer with the largest lag if that lag exceeds the limit, else None."""
        if not lags:
            return None
        record_bytes = read_bytes / read_rows if read_rows else RECORD_BYTES_ASSUMED
        slowest = max(lags, key=lambda name: lags[name])
        return slowest if lags[slowest] * record_bytes > self._bytes_max else None
