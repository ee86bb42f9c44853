"""Threads of a test, and waiting for a condition that another thread or process makes true."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

DEADLINE_S = 60.0


def until(
    condition: Callable[[], object],
    why: str = "the condition did not become true",
    within_s: float = DEADLINE_S,
) -> float:
    """Wait until the condition holds, and return the seconds waited. Fails after `within_s`."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < within_s, f"{why}, in {within_s:g} s"
        time.sleep(0.005)
    return time.monotonic() - started


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Run a call in a daemon thread, and return the thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
