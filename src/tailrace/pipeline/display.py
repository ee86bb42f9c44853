"""The progress of a run on standard error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tailrace.pipeline.report import RunProgress
from tailrace.pipeline.report_text import progress_line, progress_text
from tailrace.source.reader import Closeable
from tailrace.terminal.progress import ProgressDisplay


class RunDisplay(Closeable):
    """Shows progress: `text` that is redrawn on a terminal, lines of `line` elsewhere.

    `on_stop` is the sentence that it writes once, when the run is being stopped. Leaving the `with`
    block clears the table.
    """

    def __init__(
        self,
        *,
        line: Callable[[RunProgress], str] = progress_line,
        text: Callable[[RunProgress], str] = progress_text,
        on_stop: str = "",
        display: ProgressDisplay | None = None,
    ) -> None:
        self._display = display or ProgressDisplay()
        self._line = line
        self._text = text
        self._on_stop = on_stop
        self._waiting: str | None = None

    def close(self) -> None:
        """Clear the table."""
        self._display.clear()

    def __call__(self, progress: RunProgress) -> None:
        """Show the progress, if the next drawing or line is due."""
        if progress.waiting is not None and progress.waiting != self._waiting:
            self._display.say(f"{progress.pipeline}: the reader waits: {progress.waiting}")
        self._waiting = progress.waiting
        if progress.stopping and self._on_stop:
            self._display.say(self._on_stop)
            self._on_stop = ""
        self._display.show(partial(self._text, progress), partial(self._line, progress))
