"""How far the demo is, for whoever watches: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Final, TextIO

_BAR_WIDTH: Final = 30
_LINES: Final = 10
"""How many lines a stage takes where there is no terminal."""


class Progress:
    """One stage of the demo, which is to do so much of something."""

    def __init__(self, stream: TextIO, stage: str, total: int, unit: str) -> None:
        self._stream = stream
        self._stage = stage
        self._total = total
        self._unit = unit
        self._bar = stream.isatty()
        self._started = time.monotonic()
        self._shown = 0

    def show(self, done: int) -> None:
        """Say that so much is done."""
        if self._bar:
            filled = _BAR_WIDTH * done // self._total
            bar = "█" * filled + "·" * (_BAR_WIDTH - filled)
            self._write(f"\r{self._stage:<8} {bar} {self._count(done)}\x1b[K")
        elif done * _LINES // self._total > self._shown:
            self._shown = done * _LINES // self._total
            self._write(f"{self._stage:<8} {self._count(done)}\n")

    def say(self, event: str) -> None:
        """Tell of something that happened; on a terminal the bar goes on below."""
        self._write(f"\r\x1b[K{event}\n" if self._bar else f"{event}\n")

    def end(self) -> None:
        """Leave the bar as it is and go on below it."""
        self.show(self._total)
        if self._bar:
            self._write("\n")

    def _count(self, done: int) -> str:
        elapsed_s = time.monotonic() - self._started
        return f"{100 * done // self._total:>3} %  {done:>9,} {self._unit}  {elapsed_s:>5.1f} s"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
