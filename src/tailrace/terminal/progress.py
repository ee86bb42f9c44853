"""Progress of a command on stderr: redrawn in place on a terminal, lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

import click

REDRAW_S: Final = 0.5
"""Seconds between two drawings on a terminal."""

LINE_S: Final = 5.0
"""Seconds between two lines where there is no terminal."""


class ProgressDisplay:
    """The progress of one command. Leaving the `with` block clears the drawing.

    For one thread.
    """

    def __init__(
        self, stream: TextIO | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._monotonic = monotonic
        self._started = monotonic()
        self.redraws = self._stream.isatty()
        self._due_s = 0.0 if self.redraws else LINE_S
        self._drawn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    @property
    def seconds(self) -> float:
        """Seconds since the display was made."""
        return self._monotonic() - self._started

    def show(self, text: Callable[[], str], line: Callable[[], str] | None = None) -> None:
        """Draw `text` in place of the drawing before, or elsewhere write `line`, if one is given.

        Neither is called before the next drawing or line is due.
        """
        seconds = self.seconds
        if seconds < self._due_s:
            return
        if not self.redraws:
            self._due_s = seconds + LINE_S
            if line is not None:
                self._write(f"{line()}\n")
            return
        self._due_s = seconds + REDRAW_S
        # Lines are cut because a wrapped line would be two to clear.
        width = shutil.get_terminal_size().columns - 1
        lines = [each[:width] for each in click.unstyle(text()).splitlines()]
        self.clear()
        self._write("".join(f"{each}\n" for each in lines))
        self._drawn = len(lines)

    def say(self, sentence: str) -> None:
        """Write a line that stays, above the next drawing."""
        self.clear()
        self._write(f"{sentence}\n")

    def clear(self) -> None:
        """Remove the drawing."""
        if self._drawn:
            self._write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
