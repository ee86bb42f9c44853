"""Waiting for what a thread or a process is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 60.0


def until(
    condition: Callable[[], object], why: str = "it does not come", within_s: float = DEADLINE_S
) -> float:
    """Wait until the condition holds; how many seconds that took. Fails when it takes too long."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < within_s, f"{why}, in {within_s:g} s"
        time.sleep(0.005)
    return time.monotonic() - started
