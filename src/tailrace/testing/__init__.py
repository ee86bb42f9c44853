"""What Tailrace is tested with, for users' tests too: a backend in memory, a clock to be moved, and
an auditor that trusts nobody."""

from __future__ import annotations

from tailrace.testing.auditor import Audit, Auditor
from tailrace.testing.clock import ManualClock
from tailrace.testing.memory import MemoryBackend

__all__ = ["Audit", "Auditor", "ManualClock", "MemoryBackend"]
