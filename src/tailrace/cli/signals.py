"""Ctrl-C and SIGTERM while a command is at work."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class Signals:
    """Counts Ctrl-C and SIGTERM within a `with` block. `noted`, which may be replaced, is called
    for each, in the midst of whatever the main thread does, so it may take only locks that this
    thread can take again; it may raise."""

    def __init__(self, noted: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self.noted = noted
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.noted()
