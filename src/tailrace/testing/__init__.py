"""What Tailrace is tested with, for users' tests too: a backend in memory, a clock to be moved."""

from __future__ import annotations

from tailrace.testing.clock import ManualClock
from tailrace.testing.memory import MemoryBackend

__all__ = ["ManualClock", "MemoryBackend"]
