"""Time as a parameter: code takes a `Clock`, so that tests and simulations control the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A wall clock for people, and a monotonic clock for decisions."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC. They may jump, also backwards."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start, never decreasing, valid in this process only."""


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Return seconds since an arbitrary start, independent of the wall clock."""


def utc_time(time_ms: int) -> datetime:
    """Return the aware UTC `datetime` of a number of milliseconds since 1970."""
    return datetime.fromtimestamp(time_ms / 1000, UTC)
