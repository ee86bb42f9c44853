"""A clock that a test sets."""

from __future__ import annotations

from tailrace.errors import InvalidValue


class ManualClock:
    """A `Clock` for tests: time passes by calls of `advance` only."""

    __slots__ = ("_monotonic", "_now_ms")

    def __init__(self, now_ms: int = 1_495_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """Return the wall time in milliseconds."""
        return self._now_ms

    def monotonic(self) -> float:
        """Return the seconds that passed since the clock was made."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass, on the wall clock and the monotonic clock."""
        if seconds < 0:
            raise InvalidValue(
                "seconds", seconds, "0 or more", "use step() to set the wall clock back"
            )
        self._monotonic += seconds
        self._now_ms += round(seconds * 1000)

    def step(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as a time server would. No time passes."""
        self._now_ms += milliseconds
