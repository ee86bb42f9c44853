"""Time as a parameter: what depends on it takes a `Clock`, so that tests and simulations own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two times. Only the monotonic one decides anything; the wall clock is for people to read."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC. May step, backwards too."""

    def monotonic(self) -> float:
        """Seconds from an unknown start. Never falls; means nothing outside this process."""


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Seconds since some start, untouched by steps of the wall clock."""
