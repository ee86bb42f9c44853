"""Waiting for what a thread or a process is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 60


def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds; fail when it takes too long."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
