"""Progress of one stage of the demo: a bar on a terminal, ten lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

_BAR_WIDTH: Final = 30
_LINES: Final = 10
"""Number of lines that a stage writes where there is no terminal."""


class Display(Protocol):
    """Where the demo shows its progress."""

    @property
    def redraws(self) -> bool:
        """True if progress is drawn in place, as on a terminal."""

    def show(self, text: Callable[[], str]) -> None:
        """Draw a text in place of the one before, if it is time to."""

    def say(self, sentence: str) -> None:
        """Write a line that stays."""


class StageProgress:
    """One stage of the demo, with a known total of work."""

    def __init__(self, display: Display, stage: str, total: int, unit: str) -> None:
        self._display = display
        self._stage = stage
        self._total = total
        self._unit = unit
        self._started = time.monotonic()
        self._lines = 0
        self.say = display.say

    def show(self, done: int) -> None:
        """Show how much is done."""
        if self._display.redraws:
            self._display.show(lambda: self._bar(done))
            return
        line = done * _LINES // self._total
        if self._lines < line < _LINES:
            self._lines = line
            self.say(self._line(done))

    def end(self) -> None:
        """Write that all is done."""
        self.say(self._bar(self._total) if self._display.redraws else self._line(self._total))

    def _bar(self, done: int) -> str:
        filled = _BAR_WIDTH * done // self._total
        bar = "█" * filled + "·" * (_BAR_WIDTH - filled)
        return f"{self._stage:<9} {bar} {self._count(done)}"

    def _line(self, done: int) -> str:
        return f"{self._stage:<9} {self._count(done)}"

    def _count(self, done: int) -> str:
        elapsed_s = time.monotonic() - self._started
        return f"{100 * done // self._total:>3} %  {done:>9,} {self._unit}  {elapsed_s:>5.1f} s"
