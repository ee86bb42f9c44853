"""Handling of Ctrl-C and SIGTERM while a command or an app runs."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

POLL_S: Final = 0.2
"""The longest time until the main thread handles a signal in `wait_for`."""


SAME_S: Final = 1.0
"""A SIGTERM so soon after another counts with it: ``timeout`` sends two, to the process and to its
group."""


class Signals:
    """Counts Ctrl-C and SIGTERM within a `with` block.

    `received` is called for each signal and may be replaced. It interrupts the main thread at any
    point, so it may acquire only reentrant locks. It may raise.
    """

    def __init__(self, received: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self.received = received
        self._before: dict[signal.Signals, Any] = {}
        self._terminated_at = -math.inf

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

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            now = time.monotonic()
            if now - self._terminated_at < SAME_S:
                return
            self._terminated_at = now
        self.count += 1
        self.received()


def interrupt() -> None:
    """Handle a signal before there is anything to stop: for `Signals.received`."""
    raise KeyboardInterrupt


def wait_for(
    condition: threading.Condition, true: Callable[[], bool], timeout_s: float | None = None
) -> bool:
    """Wait as `threading.Condition.wait_for` does, and handle signals meanwhile.

    Python calls the handler of a signal in the main thread. But the system may deliver the signal
    to any thread, and then a wait of the main thread does not end, so the main thread waits in
    small steps.
    """
    if threading.current_thread() is not threading.main_thread():
        return condition.wait_for(true, timeout_s)
    end = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while not true():
        left_s = end - time.monotonic()
        if left_s <= 0:
            return False
        condition.wait(min(left_s, POLL_S))
    return True
