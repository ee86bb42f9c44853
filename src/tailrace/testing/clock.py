"""A clock that a test sets."""

from __future__ import annotations

from tailrace.errors import InvalidValue


class ManualClock:
    """A `Clock` for tests: time passes by calls of `advance` and `advance_to` only."""

    __slots__ = ("_monotonic", "_start_ms")

    def __init__(self, now_ms: int = 1_495_000_000_000) -> None:
        self._start_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """Return the wall time in milliseconds."""
        return self._start_ms + round(self._monotonic * 1000)

    def monotonic(self) -> float:
        """Return the seconds that passed since the clock was made."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass, on the wall clock and the monotonic clock."""
        if seconds < 0:
            raise InvalidValue(
                "seconds", seconds, "0 or more", "use step() to set the wall clock back"
            )
        self.advance_to(self._monotonic + seconds)

    def advance_to(self, monotonic: float) -> None:
        """Let time pass until the monotonic clock shows exactly this number of seconds."""
        if monotonic < self._monotonic:
            raise InvalidValue("monotonic", monotonic, f"{self._monotonic}, its time now, or more")
        self._monotonic = monotonic

    def step(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as a time server would. No time passes."""
        self._start_ms += milliseconds
