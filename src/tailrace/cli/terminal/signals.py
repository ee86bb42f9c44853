"""Handling of Ctrl-C and SIGTERM while a command runs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class Signals:
    """Counts Ctrl-C and SIGTERM within a `with` block.

    `received` is called for each signal and may be replaced. It interrupts the main thread at any
    point, so it may acquire only reentrant locks. It may raise.
    """

    def __init__(self, received: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self.received = received
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.received()
